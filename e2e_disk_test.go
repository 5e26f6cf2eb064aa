package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EKilledOnAFullDisk: a server that is killed while its disk is full
// comes back on it, with what was there.
func TestE2EKilledOnAFullDisk(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	disk := filepath.Dir(data)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatalf("this test mounts a tmpfs, which needs root: %v", err)
	}
	filler := filepath.Join(disk, "filler")
	t.Cleanup(func() {
		_ = os.Remove(filler)
		if len(leftovers(data, cgroupsOf(data))) > 0 {
			serveBinary(t, data).end(t, syscall.SIGTERM, false)
		}
		wait.For(t, "nobody has a file of the disk open", func() bool { return unix.Unmount(disk, 0) == nil })
	})
	p := serveBinary(t, data)
	runner := p.claimLoosely(t, "shell")
	wait.For(t, "a runner is idle", func() bool { // a server says that it is ready once it has one
		for _, r := range p.runnersOf(t, "") {
			if r.State == "IDLE" {
				return true
			}
		}
		return false
	})
	script, want := inHalves(400)
	x := p.start(t, object{"runnerId": runner, "shell": script})
	wait.For(t, "it has printed one half", func() bool { return len(running(p.cgroups, "sleep")) == 1 })
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(file, zeros{})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk didn't fill: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	p.end(t, syscall.SIGKILL, false)
	p.wake(t, 1)
	wait.For(t, "it has printed the other half", func() bool { return len(running(p.cgroups, "sh")) == 0 })
	p = serveBinary(t, data)
	if r := p.runnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
		t.Errorf("the runner is %+v", r)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r := &reader{id: x}
	r.read(t.Context(), p.bed)
	if r.end == nil || r.end.Outcome != "EXITED" || r.end.ExitCode != 7 || int64(r.got.Len())+r.lost != int64(len(want)) {
		t.Errorf("it ended as %+v, with %d bytes and %d lost of %d", r.end, r.got.Len(), r.lost, len(want))
	}
	p.claimLoosely(t, "shell") // new ones are made again
	p.claimLoosely(t, "shell")
	p.claimLoosely(t, "shell")
	p.finish(t)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
