package main

// foreign are calls by the doors of other architectures: a 64-bit program can't
// open one here.
var foreign = map[string]call{}
