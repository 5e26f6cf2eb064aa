package maker

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call is one system call of a script: struct call in clone.go.
type call struct {
	number uintptr
	args   [6]uintptr
	accept [2]syscall.Errno // errors that are no failure; 0: none
	want   int64            // the result that is no failure; or anyResult, or inChild
}

// A script is what a new process does before it becomes a program: system calls, in
// their order. All that they need is made before the process is, since the process
// can't allocate memory. The zero value is empty.
type script struct {
	calls []call
	names []string // what each call does, for errors
	kept  []any    // what the calls point to
}

// Values of call.want that no result has.
const (
	anyResult = -1
	inChild   = -2 // the process ends, and the one that it has made goes on
)

// add adds a call.
func (s *script) add(name string, number uintptr, args ...uintptr) *call {
	c := call{number: number, want: anyResult}
	copy(c.args[:], args)
	s.calls, s.names = append(s.calls, c), append(s.names, name)
	return &s.calls[len(s.calls)-1]
}

// unless has a call accept an error.
func (c *call) unless(errs ...syscall.Errno) { copy(c.accept[:], errs) }

// text returns the address of a C string.
func (s *script) text(t string) uintptr {
	b := append([]byte(t), 0)
	return s.bytes(b)
}

func (s *script) bytes(b []byte) uintptr {
	s.kept = append(s.kept, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// texts returns the address of a list of C strings that ends with a null pointer.
func (s *script) texts(all []string) uintptr {
	list := make([]uintptr, len(all)+1)
	for i, t := range all {
		list[i] = s.text(t)
	}
	s.kept = append(s.kept, list)
	return uintptr(unsafe.Pointer(unsafe.SliceData(list)))
}

// point returns the address of a value that the script keeps.
func point[T any](s *script, value *T) uintptr {
	s.kept = append(s.kept, value)
	return uintptr(unsafe.Pointer(value))
}

// mount adds a mount(2); data of "" is none.
func (s *script) mount(source, at, kind string, flags uintptr, data string) *call {
	var text uintptr
	if data != "" {
		text = s.text(data)
	}
	return s.add("mount "+at, unix.SYS_MOUNT, s.text(source), s.text(at), s.text(kind), flags, text)
}

// A failure is what the process reports instead of becoming a program: struct failure.
type failure struct {
	step  uint32
	errno uint32
}

func (f failure) Error() string {
	return fmt.Sprintf("the first process: step %d: %v", f.step, syscall.Errno(f.errno))
}

// explain names the step of a failure, which is err or in it.
func (s *script) explain(err error) error {
	var f failure
	if !errors.As(err, &f) || int(f.step) >= len(s.names) {
		return err
	}
	return fmt.Errorf("the first process: %s: %w", s.names[f.step], syscall.Errno(f.errno))
}
