package maker

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call is one system call of a script. struct call in clone.go has the same layout.
type call struct {
	number uintptr
	args   [6]uintptr
	accept [2]syscall.Errno // errors that count as success, or 0
	want   int64            // the result that counts as success, or anyResult, or inChild
}

// A script is the list of system calls that a new process makes before it executes a program. All
// of their memory is allocated before the process is made, because the process can't allocate any.
// The zero value is empty, and its memory is this process's. With an image, its memory is that.
type script struct {
	calls []call
	names []string // what each call does, for errors
	kept  []any    // what the calls point to, kept from the garbage collector
	image *image
}

// Values of call.want that no system call returns.
const (
	anyResult = -1
	inChild   = -2 // the process ends, and its new child continues
)

// add adds a call. The returned pointer is valid until the next add.
func (s *script) add(name string, number uintptr, args ...uintptr) *call {
	c := call{number: number, want: anyResult}
	copy(c.args[:], args)
	s.calls, s.names = append(s.calls, c), append(s.names, name)
	return &s.calls[len(s.calls)-1]
}

func (c *call) unless(errs ...syscall.Errno) { copy(c.accept[:], errs) }

// text returns the address of a C string that the script keeps.
func (s *script) text(t string) uintptr {
	b := append([]byte(t), 0)
	return s.bytes(b)
}

// bytes returns the address of b, which the script keeps. An image has a copy of b.
func (s *script) bytes(b []byte) uintptr {
	if s.image != nil {
		return s.image.add(b)
	}
	s.kept = append(s.kept, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// texts returns the address of a null-terminated list of C strings.
func (s *script) texts(all []string) uintptr {
	list := make([]uintptr, len(all)+1)
	for i, t := range all {
		list[i] = s.text(t)
	}
	return s.bytes(bytesOf(list))
}

// bytesOf returns the memory of values.
func bytesOf[T any](values []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(one)))
}

// point returns the address of a value, and keeps the value. An image has a copy of it.
func point[T any](s *script, value *T) uintptr {
	if s.image != nil {
		return s.image.add(bytesOf(unsafe.Slice(value, 1)))
	}
	s.kept = append(s.kept, value)
	return uintptr(unsafe.Pointer(value))
}

// mount adds a call of mount(2). data "" passes a null pointer.
func (s *script) mount(source, at, kind string, flags uintptr, data string) *call {
	var text uintptr
	if data != "" {
		text = s.text(data)
	}
	return s.add("mount "+at, unix.SYS_MOUNT, s.text(source), s.text(at), s.text(kind), flags, text)
}

// A failure is what a process reports instead of executing a program. struct failure in clone.go
// has the same layout.
type failure struct {
	step  uint32
	errno uint32
}

func (f failure) Error() string {
	return fmt.Sprintf("the first process: step %d: %v", f.step, syscall.Errno(f.errno))
}

// explain adds the step's name to err if that is or contains a failure.
func (s *script) explain(err error) error {
	f, ok := errors.AsType[failure](err)
	if !ok || int(f.step) >= len(s.names) {
		return err
	}
	return fmt.Errorf("the first process: %s: %w", s.names[f.step], syscall.Errno(f.errno))
}
