"""Methods of others that OSCAR is compared with: entry points of the group oscar.methods, a file each."""
