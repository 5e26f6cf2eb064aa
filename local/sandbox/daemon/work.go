package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Bounds of workers.
const (
	worksAtOnce = 4
	workWithin  = 6 * time.Hour
)

// errAnswered says that a request was answered.
var errAnswered = errors.New("it was answered")

func checkDirectory(fd int) error {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("the descriptor to work on isn't a directory")
	}
	return nil
}

// work has a process work on a directory: root in a user namespace of the owners
// of images' files, and so nobody on the machine. Whatever directory that is,
// and whatever the process is told or talked into, what it can change is those
// owners' files and what everybody may change.
func (d *daemon) work(ctx context.Context, conn *net.UnixConn, dir *os.File) error {
	patience := time.NewTimer(doneWithin)
	defer patience.Stop()
	select {
	case d.works <- struct{}{}:
		defer func() { <-d.works }()
	case <-patience.C:
		return fmt.Errorf("%d processes are at work on images already", worksAtOnce)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	peer, err := conn.File()
	if err != nil {
		return err
	}
	defer peer.Close()
	cmd := exec.CommandContext(ctx, d.config.Worker, helper.WorkerArgument)
	cmd.Env = []string{"GOMEMLIMIT=256MiB"}
	cmd.Dir = "/"
	cmd.Stdin = peer
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{dir}
	users := []syscall.SysProcIDMap{{ContainerID: 0, HostID: spec.ImageOwners, Size: spec.UIDs}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: users, GidMappings: users, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0}, // of the namespace; no other groups
		Setsid:     true,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process to work on images: %w", err)
	}
	text, err := json.Marshal(helper.Answer{PID: cmd.Process.Pid})
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(saidWithin))
		_, err = conn.Write(text)
	}
	if err != nil {
		cancel()
	}
	_ = conn.Close() // the process has it
	if err := errors.Join(err, peer.Close(), cmd.Wait()); err != nil {
		d.log.Printf("work on an image: %v", err)
	}
	return errAnswered
}
