package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestE2EKilledOnAFullDisk: a server that is killed while its disk is full
// comes back on it, with what was there.
func TestE2EKilledOnAFullDisk(t *testing.T) {
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
		eventually(t, 10*time.Second, "nobody has a file of the disk open", func() bool { return unix.Unmount(disk, 0) == nil })
	})
	p := serveBinary(t, data)
	runner := p.claimLoosely(t, "shell")
	eventually(t, time.Minute, "a runner is idle", func() bool { // a server says that it is ready once it has one
		for _, r := range p.runnersOf(t, "") {
			if r.State == "IDLE" {
				return true
			}
		}
		return false
	})
	script, want := countingTo(400, 4)
	x := p.start(t, object{"runnerId": runner, "shell": script})
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
	p = p.killed(t, time.Second)
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
