package bed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/socket"
	"github.com/rockpool/rockpool/test/bench/usage"
	"github.com/rockpool/rockpool/test/commandline"
)

// A launch says how to start a server.
type launch struct {
	program  string
	data     string // its directory, with no other content
	Group    string // the cgroup above its runners'; "" means they don't run on this machine
	listen   string
	profiled bool
	Prefix   string                     // of names in Nomad, if its runners are there
	cluster  []string                   // its flags for the cluster
	env      client.PutEnvironmentInput // required fields of environments there

	overcommitted bool // by CPUOvercommit and MemoryOvercommit
}

// A Server is a process of rockpool serve.
type Server struct {
	*client.Client
	launch
	URL      string
	profiles string // address of its profiles; "" if it serves none
	kept     int    // the most runners that it had
	cmd      *exec.Cmd
	stderr   string        // a file: a pipe would end with this process, and the next write would kill the server
	copied   chan struct{} // closed once its stdout has ended
}

// readyURL finds the server's URL in the line that it prints when it is ready.
var readyURL = regexp.MustCompile(`rockpool is ready: (http://\S+)/graphql`)

// startServer starts a server and waits until it is ready. Signals from the terminal don't reach
// it: it ends when it is stopped or when this process is killed. It ignores this machine's
// settings, both variables and files.
func startServer(ctx context.Context, l launch) (*Server, error) {
	s := &Server{launch: l, stderr: filepath.Join(filepath.Dir(l.data), "server.log"), copied: make(chan struct{})}
	stderr, err := os.Create(s.stderr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }() // the server has its own copy
	args := append([]string{"serve", "--end-with-stdin", "--config", os.DevNull, "--listen", l.listen, "--data", l.data, "--log-level", "warn"}, l.cluster...)
	if l.profiled {
		if s.profiles, err = freeAddress(ctx); err != nil {
			return nil, err
		}
		args = append(args, "--debug-address", s.profiles)
	}
	s.cmd = exec.Command(l.program, args...)
	s.cmd.Env = commandline.Environment("ROCKPOOL_")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = stderr
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		_, err = s.cmd.StdinPipe() // its end stops the server, even if this process is killed
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(s.copied)
		defer close(ready)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if m := readyURL.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m[1]
				break
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	select {
	case url, ok := <-ready:
		if !ok {
			_ = s.cmd.Wait()
			return nil, fmt.Errorf("it ended before it was ready: %s", s.log())
		}
		s.URL, s.Client = url, client.New(url)
		return s, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.stop())
	}
}

// log returns the server's log.
func (s *Server) log() string {
	text, err := os.ReadFile(s.stderr)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// manyRunners may take longer to remove than the 5 s that a server has to stop.
const manyRunners = 50

// stop stops the server, which removes everything that it made. If the server exits with an error,
// stop returns it with the log.
func (s *Server) stop() error {
	const patience = 10 * time.Second // the server takes 5 s at most
	if s.kept > manyRunners && s.Group != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Keep(ctx, 0) // an error shows when the server stops
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.copied
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server's end: %w: %s", err, s.log())
	}
	if s.Client != nil {
		s.CloseIdle()
	}
	return nil
}

// Replace kills the server and starts the next one on its data.
func (s *Server) Replace(ctx context.Context) error {
	_ = s.cmd.Process.Kill()
	<-s.copied
	_ = s.cmd.Wait() // always an error: it was killed
	s.CloseIdle()
	next, err := startServer(ctx, s.launch)
	if err != nil {
		return err
	}
	next.kept = s.kept
	*s = *next
	return nil
}

// Keep sets the pool's size and waits for its idle runners.
func (s *Server) Keep(ctx context.Context, runners int) error {
	input := s.env
	input.Id, input.PoolSize, input.OutputLimit, input.DefaultTimeLimit = Environment, &runners, new(int64(1<<40)), new(0)
	s.kept = max(s.kept, runners)
	if err := client.Put(ctx, s, input); err != nil {
		return err
	}
	return s.Settle(ctx, runners)
}

// Load sets the interpreter that runners made by later calls of Keep load.
func (s *Server) Load(which runtime.Interpreter) {
	s.env.Warm = &client.WarmInput{Interpreter: which}
}

// Settle waits until this many runners are idle, and none starts or stops.
func (s *Server) Settle(ctx context.Context, idle int) error {
	var last string
	err := Until(ctx, func() (bool, error) {
		out, err := client.GetPool(ctx, s, Environment)
		if err != nil {
			return false, err
		}
		p := out.Environment.Pool
		last = fmt.Sprintf("%+v", p)
		return p.Idle == idle && p.Starting == 0 && p.Stopping == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d idle runners (%s): %w", idle, last, err)
	}
	return nil
}

// Claim claims a runner and returns its id.
func (s *Server) Claim(ctx context.Context) (string, error) {
	return client.Claim(ctx, s, ClaimInput())
}

// ClaimInput is the input that Claim sends.
func ClaimInput() client.ClaimRunnerInput {
	return client.ClaimRunnerInput{EnvironmentId: Environment, WaitFor: new(60)}
}

// Release releases a runner.
func (s *Server) Release(ctx context.Context, runner string) error {
	return client.Release(ctx, s, runner)
}

// Start starts a command and returns the execution's id.
func (s *Server) Start(ctx context.Context, runner string, command ...string) (string, error) {
	return client.Start(ctx, s, client.StartExecutionInput{RunnerId: runner, Command: command})
}

// Run runs a command to its end. An exit code other than 0 is an error.
func (s *Server) Run(ctx context.Context, runner string, command ...string) error {
	execution, err := s.Start(ctx, runner, command...)
	if err != nil {
		return err
	}
	return s.Await(ctx, execution)
}

// Await waits for an execution's end. An exit code other than 0 is an error.
func (s *Server) Await(ctx context.Context, execution string) error {
	end, err := client.Await(ctx, s, execution)
	if err == nil && (end.ExitCode == nil || *end.ExitCode != 0) {
		err = fmt.Errorf("execution %s: %s %s", execution, end, end.Message)
	}
	return err
}

// PID returns its process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// cpu returns the CPU time of the server with its helpers, and of all that ran in its runners.
func (s *Server) cpu() (server, inside time.Duration, ok bool) {
	own, ok := usage.ProcessCPU(s.PID())
	if !ok {
		return 0, 0, false
	}
	if s.Group != "" {
		inside = usage.GroupCPU(s.Group)
	}
	return own + usage.ChildrenCPU(s.PID()) + usage.HelpersCPU(s.PID(), s.Group), inside, true
}

// Dial opens a socket to the server.
func (s *Server) Dial(ctx context.Context) (*socket.Conn, error) { return socket.Dial(ctx, s.URL) }
