package life

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EKilledOnAFullDisk: a server that is killed while its disk is full starts again on that
// disk, with all that it had stored.
func TestE2EKilledOnAFullDisk(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	disk := filepath.Dir(data)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatalf("this test mounts a tmpfs, which needs root: %v", err)
	}
	filler := filepath.Join(disk, "filler")
	t.Cleanup(func() {
		_ = os.Remove(filler)
		if len(bed.Leftovers(data, bed.CgroupsOf(data))) > 0 {
			bed.ServeBinary(t, data).End(t, syscall.SIGTERM, false)
		}
		wait.For(t, "no file of the disk is open", func() bool { return unix.Unmount(disk, 0) == nil })
	})
	p := bed.ServeBinary(t, data)
	runner := p.ClaimUnreleased(t, "shell")
	wait.For(t, "a runner is idle", func() bool { // the server is ready once it has one
		for _, r := range p.RunnersOf(t, "") {
			if r.State == "IDLE" {
				return true
			}
		}
		return false
	})
	script, want := bed.InHalves(400)
	x := p.Start(t, object{"runnerId": runner, "shell": script})
	wait.For(t, "it has printed one half", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 1 })
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(file, zeros{})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk didn't fill: got %v, want %v", err, unix.ENOSPC)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	p.End(t, syscall.SIGKILL, false)
	p.Wake(t, 1)
	wait.For(t, "it has printed the other half", func() bool { return len(bed.Running(p.Cgroups, "sh")) == 0 })
	p = bed.ServeBinary(t, data)
	if r := p.RunnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
		t.Errorf("the runner is %+v", r)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r := &bed.Reader{ID: x}
	r.Read(t.Context(), p.Bed)
	if r.End == nil || r.End.String() != "EXITED 7" || int64(r.Got.Len())+r.Lost != int64(len(want)) {
		t.Errorf("it ended as %+v, with %d bytes and %d lost of %d", r.End, r.Got.Len(), r.Lost, len(want))
	}
	p.ClaimUnreleased(t, "shell") // new runners are made again
	p.ClaimUnreleased(t, "shell")
	p.ClaimUnreleased(t, "shell")
	p.Finish(t)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
