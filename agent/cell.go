package agent

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// A cell is the sandbox of one run, beside the runner that serves it. Its first process, init, has a socket to the
// agent (SOCK_SEQPACKET), on which it sends a [CellReport] for each step, and receives orders. The cell ends when the
// agent closes the socket.

// A CellReportKind is what init reports; init.c has the same numbers.
type CellReportKind uint32

// The kinds.
const (
	CellUnprepared CellReportKind = iota + 1 // the command isn't started: a file couldn't be written
	CellUnstarted                            // the command couldn't be started
	CellPrepared                             // the files are written; the command waits for CellGo
	CellStarted
	CellEnded // the command; its background processes may still run
)

// Orders to init, one packet each.
const (
	CellGo     = 'g' // start the command; sent after CellPrepared
	CellSignal = 's' // send a signal, the packet's second byte, to the command's process group
	CellKill   = 'k' // kill everything in the cell
)

// A CellReport is init's. Its layout is that of struct report in init.c.
type CellReport struct {
	Kind                   CellReportKind
	Step, Errno            uint32 // of a failure: the step of the plan
	Status                 syscall.WaitStatus
	User, System, Resident int64 // microseconds of the command and those that it waited for; KiB of the largest
}

// CellReportSize is the size of a report in bytes.
const CellReportSize = int(unsafe.Sizeof(CellReport{}))

// ParseCellReport parses a report.
func ParseCellReport(b []byte) (r CellReport, err error) {
	if len(b) != CellReportSize {
		return r, fmt.Errorf("init's report has %d bytes, not %d", len(b), CellReportSize)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), CellReportSize), b)
	return r, nil
}

// CPU returns the CPU time that a report has.
func (r CellReport) CPU() (user, system time.Duration) {
	return time.Duration(r.User) * time.Microsecond, time.Duration(r.System) * time.Microsecond
}
