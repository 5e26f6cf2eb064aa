package confinement

import "golang.org/x/sys/unix"

// architecture is the only one whose calls the filter accepts.
const architecture = unix.AUDIT_ARCH_AARCH64

// allowedHere and refusedHere are empty on this architecture.
var allowedHere, refusedHere []uint32

// hugeSizes are the logarithms of the sizes of huge pages; 0 is the default size.
var hugeSizes = []uint32{0, 16, 21, 25, 30}
