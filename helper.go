package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/daemon"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/server"
)

// A helperCommand is the command helper, with its flags.
type helperCommand struct {
	User         string `env:"ROCKPOOL_HELPER_USER" default:"rockpool" placeholder:"NAME" help:"The server's user, by name or number. Only this user can use the socket. (${default}; $$${env})"`
	Socket       string `env:"ROCKPOOL_HELPER_SOCKET" default:"/run/rockpool/sandbox.sock" placeholder:"PATH" help:"Socket to listen on, in a directory where only root can create files. It is the server's --sandbox-helper. A socket from systemd overrides it. (${default}; $$${env})"`
	State        string `env:"ROCKPOOL_HELPER_STATE" default:"/var/lib/rockpool-helper" placeholder:"DIR" help:"Directory for the helper's files. Only root can read it. Its file system must not be mounted noexec. (${default}; $$${env})"`
	Data         string `env:"ROCKPOOL_DATA" default:"/var/lib/rockpool" placeholder:"DIR" help:"The server's --data. (${default}; $$${env})"`
	Network      bool   `env:"ROCKPOOL_NETWORK" help:"Let environments have a network. Set the server's --network too. ($$${env})"`
	CgroupParent string `env:"ROCKPOOL_CGROUP_PARENT" default:"rockpool" placeholder:"PATH" help:"The server's --cgroup-parent. (${default}; $$${env})"`

	Disk     config.Disk     `embed:"" prefix:"disk-"`
	Networks config.Offer    `embed:"" prefix:"network-"`
	Runtimes config.Runtimes `embed:""`
}

// An imageWorkerCommand works on an image; a helper, or a server without root, starts it.
type imageWorkerCommand struct {
	AwaitUsers bool `hidden:""`
}

// Run works until stdin, a connection to the server, is closed.
func (c imageWorkerCommand) Run(command.Streams) error {
	if c.AwaitUsers {
		if err := launch.BecomeOwner(); err != nil {
			return err
		}
	}
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	return image.Work(context.Background(), conn.(*net.UnixConn), os.NewFile(3, "directory"))
}

// Run installs the helper's parts, and executes rockpool-sandbox in place of this program.
func (c *helperCommand) Run(command.Streams) error {
	helps, err := c.daemon()
	if err != nil {
		return err
	}
	if !uids.Root() {
		return errors.New("the sandbox helper needs root: start it with sudo")
	}
	if err := c.install(); err != nil {
		return err
	}
	text, err := json.Marshal(helps)
	if err != nil {
		return err
	}
	program := filepath.Join(helps.Dir, daemon.Program)
	err = syscall.Exec(program, []string{daemon.Program, helper.Listen, string(text)}, []string{})
	return fmt.Errorf("%s can't be executed: move --state to a file system that isn't mounted noexec: %w", program, err)
}

// daemon checks the flags, and returns the helper's configuration.
func (c *helperCommand) daemon() (daemon.Config, error) {
	uid, err := strconv.ParseUint(c.User, 10, 31)
	if err != nil {
		found, err := user.Lookup(c.User)
		if err != nil {
			return daemon.Config{}, &config.Error{Flag: "user", Value: c.User, Allowed: "a user of this machine: create one with `useradd --system rockpool`"}
		}
		if uid, err = strconv.ParseUint(found.Uid, 10, 31); err != nil {
			return daemon.Config{}, err
		}
	}
	if uid == 0 {
		return daemon.Config{}, &config.Error{Flag: "user", Value: c.User, Allowed: "a user other than root: a server that runs as root needs no helper"}
	}
	for flag, path := range map[string]string{"socket": c.Socket, "state": c.State, "data": c.Data} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
			return daemon.Config{}, &config.Error{Flag: flag, Value: path, Allowed: "an absolute path without .. or a / at its end"}
		}
	}
	parent := "/" + c.CgroupParent
	if !helper.ValidParent(parent) {
		return daemon.Config{}, &config.Error{Flag: "cgroup-parent", Value: c.CgroupParent, Allowed: "rockpool, or a path below it, for example rockpool/test"}
	}
	data := c.Data
	if there, err := filepath.EvalSymlinks(data); err == nil { // the daemon follows no links
		data = there
	}
	helps := daemon.Config{Socket: c.Socket, UID: int(uid), Dir: c.State, Images: filepath.Join(data, "local", "images"), Parent: parent}
	if helps.Worker, err = os.Executable(); err != nil {
		return daemon.Config{}, err
	}
	if helps.Runtimes, err = c.Runtimes.Parse(); err != nil {
		return daemon.Config{}, err
	}
	if err := c.Disk.Check(); err != nil {
		return daemon.Config{}, err
	}
	helps.DiskRead = server.DiskRead(c.Disk)
	if c.Network {
		offer, err := c.Networks.Parse()
		if err != nil {
			return daemon.Config{}, err
		}
		helps.Network = &offer
	}
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) && os.Getenv("LISTEN_FDS") == "1" {
		helps.Socket = "" // sd_listen_fds(3): descriptor 3
	}
	return helps, nil
}

// install writes the helper and the agent to where only root can write.
func (c *helperCommand) install() error {
	agent, err := embedded.Binary(goruntime.GOARCH)
	if err != nil {
		return err
	}
	program, err := sandbox.Binary()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return err
	}
	if err := oci.RootOnly(c.State); err != nil { // these files will be executed
		return err
	}
	for name, data := range map[string][]byte{daemon.Program: program, daemon.Agent: agent} {
		if err := launch.WriteProgram(filepath.Join(c.State, name), data); err != nil {
			return err
		}
	}
	return nil
}
