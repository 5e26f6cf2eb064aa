package house

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/test/chaos/ledger"
)

// Image is the image of containers on Nomad: nomadtest.Image.
const Image = "rockpool-test:1"

// nomadPrefix is the prefix of all names of the servers on Nomad.
const nomadPrefix = "chaos"

// A Nomad belongs to the run. Its parts can be killed and frozen, and its API does what an operator
// can do. Only one goroutine uses it.
type Nomad struct {
	Driver  string // of the runners' tasks
	program *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	address string
	dir     string // parent of all its directories
	stopped bool   // it got the order to stop
}

// startNomad starts a Nomad and returns when it accepts jobs.
func startNomad(ctx context.Context, program, driver string, clients int, progress io.Writer) (n *Nomad, err error) {
	n = &Nomad{Driver: driver, program: exec.Command(program, "-control", "-drivers", driver, "-clients", strconv.Itoa(clients))}
	n.program.Stderr = progress
	n.program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C doesn't reach it; it ends with its input, even if this process is killed
	if n.orders, err = n.program.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.program.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.answers = bufio.NewScanner(out)
	if err := n.program.Start(); err != nil {
		return nil, fmt.Errorf("%w: make chaos CLUSTER=nomad builds it", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = n.program.Process.Signal(os.Interrupt) }) // building it can take minutes
	defer stop()
	var where struct{ Address, Dir string }
	if err := n.answer(&where); err != nil {
		return nil, errors.Join(fmt.Errorf("start a Nomad: %w", err), context.Cause(ctx), n.Close())
	}
	n.address, n.dir = where.Address, where.Dir
	return n, nil
}

// answer reads the program's next line, which is JSON. It blocks until there is one.
func (n *Nomad) answer(into any) error {
	if !n.answers.Scan() {
		return errors.Join(errors.New("it doesn't answer"), n.answers.Err())
	}
	return json.Unmarshal(n.answers.Bytes(), into)
}

// Order sends an order to the program (see test/nomadtest/cmd) and waits until it was carried out.
func (n *Nomad) Order(what string) error {
	if _, err := io.WriteString(n.orders, what+"\n"); err != nil {
		return err
	}
	var answer struct{ Error string }
	if err := n.answer(&answer); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", what, answer.Error)
	}
	return nil
}

// Close stops Nomad and all that it started.
func (n *Nomad) Close() error {
	if n == nil || n.stopped {
		return nil
	}
	n.stopped = true
	_ = n.orders.Close()
	if err := n.program.Wait(); err != nil {
		return fmt.Errorf("end Nomad: %w", err)
	}
	return nil
}

// flags are a server's flags for this Nomad. The lock's lifetime is longer than the faults of
// Nomad.
func (n *Nomad) flags(url string) []string {
	return []string{"--cluster", "nomad", "--nomad-address", n.address, "--nomad-driver", n.Driver, "--nomad-prefix", nomadPrefix, "--nomad-node-images",
		"--nomad-lock-ttl", "60", "--advertise-url", url}
}

// Call sends a request to Nomad's API.
func (n *Nomad) Call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, n.address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	case into == nil:
		return nil
	}
	return json.Unmarshal(answer, into)
}

// jobPrefix begins the ids of all runners' jobs.
const jobPrefix = nomadPrefix + "-runner-"

// JobOf returns the id of a runner's job.
func JobOf(runner string) string { return jobPrefix + runner }

// Runners returns the runners that have jobs, or none while Nomad doesn't answer.
func (n *Nomad) Runners() []string {
	var jobs []struct{ ID string }
	_ = n.Call(context.Background(), http.MethodGet, "/v1/jobs?prefix="+jobPrefix, nil, &jobs)
	var all []string
	for _, job := range jobs {
		all = append(all, strings.TrimPrefix(job.ID, jobPrefix))
	}
	slices.Sort(all)
	return all
}

// An allocation is Nomad's allocation of a job.
type allocation struct{ ID, JobID, ClientStatus, DesiredStatus string }

// Allocation returns the id of a runner's allocation; "" if it has none.
func (n *Nomad) Allocation(ctx context.Context, runner string) string {
	var all []allocation
	_ = n.Call(ctx, http.MethodGet, "/v1/job/"+JobOf(runner)+"/allocations", nil, &all)
	for _, a := range all {
		if a.ClientStatus == "running" && a.DesiredStatus == "run" {
			return a.ID
		}
	}
	return ""
}

// Leaks records what is left of runners on Nomad after the last server has removed them.
func (n *Nomad) Leaks(ctx context.Context, l *ledger.Ledger) error {
	var allocations []allocation
	var variables []struct{ Path string }
	err := errors.Join(
		n.Call(ctx, http.MethodGet, "/v1/allocations", nil, &allocations),
		n.Call(ctx, http.MethodGet, "/v1/vars?prefix="+nomadPrefix+"/runners/", nil, &variables))
	for _, runner := range n.Runners() {
		l.Wrong(ledger.LeakedJobs, 1, "job %s", JobOf(runner))
	}
	for _, a := range allocations {
		if a.ClientStatus == "running" || a.ClientStatus == "pending" {
			l.Wrong(ledger.LeakedJobs, 1, "allocation %s of %s is %s", a.ID, a.JobID, a.ClientStatus)
		}
	}
	for _, v := range variables {
		l.Wrong(ledger.LeakedJobs, 1, "claim %s", v.Path)
	}
	for dir, what := range n.left(ctx, allocations) {
		l.Wrong(ledger.LeakedProcesses, 1, "%s: %s", dir, what)
	}
	return err
}

// left returns the processes of tasks that don't end, by their directories in /proc. A killed
// client leaves tasks that Nomad no longer knows. Their agents notice that within seconds.
func (n *Nomad) left(ctx context.Context, tasks []allocation) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		left := map[string]string{}
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range processes {
			if what := n.belongs(dir, tasks); what != "" {
				left[dir] = what
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// belongs says how a process belongs to a task; "" if it doesn't. A zombie counts as dead.
func (n *Nomad) belongs(dir string, tasks []allocation) string {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return ""
	}
	exe, _ := os.Readlink(filepath.Join(dir, "exe"))
	groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
	for _, a := range tasks {
		if strings.Contains(string(groups)+exe, a.ID) {
			return fmt.Sprintf("in the group of %+v", a)
		}
	}
	for _, link := range []string{"exe", "cwd", "root"} { // for processes in none of Nomad's cgroups, as with raw_exec
		if at, err := os.Readlink(filepath.Join(dir, link)); err == nil && strings.HasPrefix(at, filepath.Join(n.dir, "client", "alloc")+"/") {
			return link + " " + at
		}
	}
	return ""
}

// KeepLogs copies Nomad's logs to a directory that the run doesn't remove.
func (n *Nomad) KeepLogs(dir string) error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, name := range []string{"server", "client"} {
		text, err := os.ReadFile(filepath.Join(n.dir, name+".log"))
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, "nomad-"+name+".log"), text, 0o600))
	}
	return errors.Join(errs...)
}
