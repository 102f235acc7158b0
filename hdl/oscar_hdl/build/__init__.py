"""From MyHDL to files for tools: conversion, formal proofs, placement."""
