package process

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// Limited is the argument that makes this program call [BecomeLimited]. Where [launch.Into] doesn't
// work, a command with limits starts through one more exec of the agent. That process sets the limits
// on itself and becomes the command. So they apply from the command's first instruction, and never to
// the agent. It takes about 2 ms.
//
//	agent limited CPU SIZE FILES PROCESSES n m FILE…(n) ENV…(m) ARGV…
//
// The environment is passed as arguments, so that the Go runtime doesn't use it.
const Limited = "limited"

// reportDescriptor is where the limited agent reports: it writes "r" before it becomes the command,
// and an errno if that fails. If it succeeds, the exec closes the descriptor.
const reportDescriptor = 3

func (s *Starter) executeLimited(p *process, f launch.Func, start agent.Start, candidates []string, attr *launch.Attr) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	// Only a non-blocking descriptor can have a deadline.
	_ = unix.SetNonblock(fds[0], true)
	report := os.NewFile(uintptr(fds[0]), "report")
	defer func() { _ = report.Close() }()
	argv := []string{"agent", Limited}
	limits := attr.Limits
	for _, n := range append(limits[:], int64(len(candidates)), int64(len(start.Env))) {
		argv = append(argv, strconv.FormatInt(n, 10))
	}
	argv = slices.Concat(argv, candidates, start.Env, start.Argv)
	attr.Env, attr.Files = nil, append(slices.Clone(attr.Files), uintptr(fds[1]))
	err := s.reaper.start(p, f, "/proc/self/exe", argv, attr)
	// The child now has the only writing end. So the report ends with its exec or its end.
	_ = unix.Close(fds[1])
	if err != nil {
		return err
	}
	if err := readReport(report); err != nil {
		s.giveUp(p)
		return err
	}
	return nil
}

// kernelLimits returns the limits that the kernel enforces: processor time in seconds, file size in
// bytes, open files, and processes. 0 means no limit.
func (s *Starter) kernelLimits(p *process, start agent.Start) launch.Limits {
	if start.Limits == nil {
		return launch.Limits{}
	}
	limits := *start.Limits
	if s.sharing || p.exact {
		// The command's group enforces the limit. Or the kernel counts the user's processes in all
		// such runners together, and only the watch enforces it.
		limits.Processes = 0
	}
	if limits.Processes > 0 {
		// The kernel counts all processes of the user. It allows one more than the limit, so that
		// the watch notices a command that exceeds it.
		limits.Processes += running(start.Privileged) + 1
	}
	seconds := (limits.CPU + time.Second - 1) / time.Second
	if seconds > 0 {
		seconds++ // for processes whose time the watch can't see; the kernel's limit is for each process
	}
	return launch.Limits{int64(seconds), limits.FileSize, int64(limits.OpenFiles), int64(limits.Processes)}
}

// readReport returns nil when the command runs with its limits.
func readReport(report *os.File) error {
	_ = report.SetReadDeadline(time.Now().Add(launch.Stuck)) // another process of the same user can stop the child
	text, err := io.ReadAll(io.LimitReader(report, 16))
	switch {
	case err != nil || len(text) == 0 || text[0] != 'r':
		return &agent.Error{Code: agent.ErrTooMany, Field: "limits", Message: "the limits couldn't be set: the runner has too many processes, or one of its programs stops new processes; retry later"}
	case len(text) == 1:
		return nil
	}
	errno, _ := strconv.Atoi(string(text[1:]))
	return syscall.Errno(errno)
}

// running returns the number of processes and threads of the user or, for root, of root, which
// includes the agent's.
func running(root bool) (n int) {
	pids, _ := proc.PIDs()
	for _, pid := range pids {
		if s, err := proc.ReadStatus(pid); err == nil {
			n += s.Threads
		}
	}
	if s, err := proc.ReadStatus(unix.Getpid()); err == nil && root {
		n += s.Threads
	}
	return n
}

var errArguments = errors.New("limited: this command is internal: only the agent itself may start it")

// BecomeLimited sets limits on this process and executes the command. It returns only on an error.
func BecomeLimited(args []string) error {
	// The descriptor was inherited without the flag.
	unix.CloseOnExec(reportDescriptor)
	if len(args) < 6 {
		return errArguments
	}
	var numbers [6]int64
	for i := range numbers {
		number, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil || number < 0 {
			return errArguments
		}
		numbers[i] = number
	}
	args = args[len(numbers):]
	files, environment := int(numbers[4]), int(numbers[5])
	if len(args) <= files+environment {
		return errArguments
	}
	if err := launch.Limits(numbers[:4]).Set(); err != nil {
		return err
	}
	report := func(text string) { _, _ = unix.Write(reportDescriptor, []byte(text)) }
	// The limits are set. An error after this is the exec's own.
	report("r")
	err := error(unix.ENOENT)
	// As in execvp(3), only these two errors lead to the next file.
	for _, file := range args[:files] {
		if err = unix.Exec(file, args[files+environment:], args[files:files+environment]); err != unix.EACCES && err != unix.ENOENT {
			break
		}
	}
	if errno, ok := err.(syscall.Errno); ok { //nolint:errorlint // an errno comes as it is
		report(strconv.Itoa(int(errno)))
	}
	return err
}
