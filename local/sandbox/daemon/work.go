package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Bounds of workers on images.
const (
	worksAtOnce = 4             // concurrent workers
	workWithin  = 6 * time.Hour // of one worker
)

var errAnswered = errors.New("it was answered")

// work runs a process that works on a directory, as root in a user namespace of the owners of
// images' files, so as nobody on the machine. It can only change files of those owners and files
// that everybody may change, whatever the directory is, and even if the process is compromised.
func (d *daemon) work(ctx context.Context, conn *net.UnixConn, dir *os.File) error {
	patience := time.NewTimer(doneWithin)
	defer patience.Stop()
	select {
	case d.works <- struct{}{}:
		defer func() { <-d.works }()
	case <-patience.C:
		return fmt.Errorf("%d processes work on images already; try again later", worksAtOnce)
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
	cmd := launch.WorkerCommand(ctx, d.config.Worker, peer, dir)
	users := []syscall.SysProcIDMap{{ContainerID: 0, HostID: spec.ImageOwners, Size: spec.UIDs}}
	cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = users, users, true
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0} // ids of the namespace; no supplementary groups
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process to work on images: %w", err)
	}
	err = send(conn, helper.Answer{PID: cmd.Process.Pid})
	if err != nil {
		cancel()
	}
	_ = conn.Close() // the process has its own descriptor
	if err := errors.Join(err, peer.Close(), cmd.Wait()); err != nil {
		d.log.Printf("work on an image: %v", err)
	}
	return errAnswered
}
