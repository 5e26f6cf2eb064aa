// The agent is the only program of Rockpool inside a runner. It starts, feeds, observes and ends
// commands, and reads and writes files. Its server is at the other end of an inherited socket;
// package agent defines their protocol. In a local runner it is PID 1. It guarantees that user code
// gets none of its privileges, and that no process of an execution is left behind.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/executor"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/process"
)

// usage is the text for a missing or unknown command. It leaves out the internal ones.
const usage = `usage: agent serve [--fd N] [--workspace DIR] [--degraded] [--groups CONTROLLER,…] [--open-files N] [--zygote]
                                                             serve on the inherited listening socket N (3)
       agent serve --outside PATH [--processes N --memory-mib N --cpu-quota N] [--workspace DIR]
                                                             serve in a runner with its own kernel, on a socket at
                                                             PATH that only the machine can connect to
       agent serve --socket PATH [--workspace DIR] [--degraded] [--no-network] [--shared-ipc] [--image] [--user USER]
                   [--workspace-mib N --processes N]
                                                             serve as a Nomad task, on a socket at PATH
       agent bridge [--socket PATH]                          carry streams between stdin/stdout and that socket
                                                             ($NOMAD_SECRETS_DIR/agent.sock)
       agent version                                         print the version and the protocol
       agent digest                                          print the SHA-256 of this program`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		switch {
		case errors.Is(err, errNotRoot):
			os.Exit(agent.ExitNotRoot)
		case errors.Is(err, errNoNamespaces):
			os.Exit(agent.ExitNoNamespaces)
		}
		os.Exit(1)
	}
}

// run executes the command that the arguments name. For serve it always returns an error.
func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	// Only the agent itself uses the second command, to start the nested agent.
	case "serve", nested:
		var o executor.Options
		fd := flags.Int("fd", 3, "descriptor of the inherited listening socket")
		socket := flags.String("socket", "", "create a listening socket at this path instead; its directory becomes private to the agent")
		flags.StringVar(&o.Workspace, "workspace", namespaces.Workspace, "directory that relative paths start from; created with --socket")
		flags.BoolVar(&o.Degraded, "degraded", false, "serve even if parts of the confinement are unavailable")
		flags.StringVar(&o.Groups, "groups", "", "controllers whose directories of control groups are the descriptors from 4 on, or \"unified\" for one directory of cgroups version 2")
		network := flags.Bool("no-network", false, "disable the network; only if the agent creates its own namespaces")
		flags.BoolVar(&o.SharedIPC, "shared-ipc", false, "don't remove System V shared memory, semaphores and queues, because other tasks share them")
		outside := flags.String("outside", "", "create a listening socket at this path instead, for peers outside of this kernel")
		flags.IntVar(&o.OpenFiles, "open-files", 0, "maximum number of open files of each process of a command; 0: the agent's own limit")
		flags.BoolVar(&o.Zygote, "zygote", false, "allow loading an interpreter that forks for commands")
		flags.BoolVar(&o.Image, "image", false, "give commands this process's environment and working directory, which a container image set")
		user := flags.String("user", "", "run commands as this user of the image: a name or number, optionally followed by \":\" and a group")
		mib := flags.Int("workspace-mib", 0, "with --socket: put the workspace and /tmp in memory, with this size in MiB, twice that for /tmp, and make all else read-only")
		processes := flags.Int("processes", 0, "with --outside or --workspace-mib: maximum number of processes and threads, including the agent's")
		memory := flags.Int("memory-mib", 0, "with --outside: the limit of memory that programs see, in MiB")
		cpu := flags.Int("cpu-quota", 0, "with --outside: the CPU time that programs see as their limit, in microseconds in each 100 ms")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		switch {
		case args[0] == nested:
			return serveNested(o.Workspace, !*network, *mib, *processes, o)
		case *outside != "":
			return serveOutside(*outside, groups.Limits{Processes: *processes, MemoryMiB: *memory, CPUQuota: *cpu}, o)
		case *user != "":
			// An account that can't be used isn't fatal. Commands then run as the default user.
			if err := confinement.RunAs(*user); err != nil {
				fmt.Fprintln(os.Stderr, "agent:", err)
			}
		}
		if *socket != "" {
			return serveTask(*socket, !*network, *mib, *processes, o)
		}
		return serveInherited(*fd, o)
	case "bridge":
		// Nomad puts variables of a task into its arguments, but not into an exec's.
		socket := flags.String("socket", filepath.Join(os.Getenv("NOMAD_SECRETS_DIR"), "agent.sock"), "path of the agent's socket")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return serveBridge(*socket)
	// Only the agent itself uses this command, between a command's fork and its exec.
	case process.Limited:
		return process.BecomeLimited(args[1:])
	case "version":
		fmt.Println(version(), "protocol", agent.Protocol)
		return nil
	case "digest":
		return printDigest()
	default:
		return errors.New(usage)
	}
}

// printDigest prints the SHA-256 of this program in hexadecimal. The server compares it after it
// has streamed the program into a task.
func printDigest() error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return err
	}
	fmt.Printf("%x\n", sum.Sum(nil))
	return nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "development"
}

func serveInherited(fd int, o executor.Options) error {
	file := os.NewFile(uintptr(fd), "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	_ = file.Close()
	if err := openToAll("/tmp", "/dev/shm"); err != nil {
		return err
	}
	return executor.Serve(listener, o)
}

// openToAll makes directories writable for every user. Older versions of runc give them the mode of
// the directory that they are mounted on.
func openToAll(directories ...string) error {
	const sticky = 0o1777
	for _, dir := range directories {
		var stat unix.Stat_t
		if os.Getpid() != 1 || unix.Stat(dir, &stat) != nil || stat.Mode&0o7777 == sticky {
			continue
		}
		if err := unix.Chmod(dir, sticky); err != nil {
			return &os.PathError{Op: "chmod", Path: dir, Err: err}
		}
	}
	return nil
}

// serveOutside serves in a runner with its own kernel (gVisor), which can't inherit a listening
// socket. It creates a socket in a directory of the machine. It accepts only peers from outside of
// its kernel, because a privileged command is root too and so can open that directory. It reports
// errors on standard error until it listens. Then it writes agent.Ready to standard output, and
// closes both.
func serveOutside(path string, limits groups.Limits, o executor.Options) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	if err := unix.Chmod(path, 0o600); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if limits.Processes > 0 {
		if o.Guest, err = groups.LimitGuest(limits); err != nil {
			return fmt.Errorf("set limits: %w", err)
		}
	}
	o.Ready = letGo
	return executor.Serve(executor.OtherKernel(listener), o)
}

// letGo reports that the agent serves, and closes descriptors 0 to 2. The maker of the runner waits
// for either event.
func letGo() error {
	if _, err := os.Stdout.WriteString(agent.Ready); err != nil {
		return err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return unix.Close(null)
}
