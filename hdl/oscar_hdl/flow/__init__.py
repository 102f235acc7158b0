"""From MyHDL to chips: conversion, placement, proofs, the example board."""
