package main

// foreign has calls through the system call entries of other architectures. On arm64, a 64-bit
// program has none.
var foreign = map[string]call{}
