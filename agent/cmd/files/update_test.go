package files

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/need"
)

// User code that puts a pipe in place of a file being written doesn't block the update.
func TestPipeDoesNotBlockAnUpdate(t *testing.T) {
	at := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(at, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(dir) }()
	awaitWriters(dir, "pipe")
}

// loses is the environment variable with the directory of a test that loses its rights.
const loses = "ROCKPOOL_TEST_LOSES_RIGHTS"

// A write that can't get the rights of commands at its end leaves no descriptor and no temporary file.
func TestWriteWithoutRightsLeavesNothing(t *testing.T) {
	at := os.Getenv(loses)
	if at == "" {
		need.Sandboxes(t) // and root, whose rights are given up
		at = t.TempDir()
		if err := errors.Join(os.Chmod(filepath.Dir(at), 0o755), os.Chown(at, 1000, 1000)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), loses+"="+at)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	f, err := New(at, at, false)
	if err != nil {
		t.Fatal(err)
	}
	f.ownUser = true
	write := func(content io.Reader) error {
		_, err := f.write(filepath.Join(at, "f"), agent.Write{Path: "f", Size: -1}, false, content)
		return err
	}
	if err := write(eof{}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if err := write(loser{t}); err != unix.EPERM {
		t.Errorf("got %v, want EPERM", err)
	}
	after, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(after) != len(before) {
		t.Errorf("it has %d descriptors, and had %d: %v", len(after), len(before), err)
	}
	entries, err := os.ReadDir(at)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}

// eof is an empty content.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// A loser is an empty content that takes the right to switch users from all threads.
type loser struct{ t *testing.T }

func (l loser) Read([]byte) (int, error) {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SETGROUPS, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		l.t.Error("seccomp:", errno)
	}
	return 0, io.EOF
}
