// Command depth counts the files and packages of Rockpool that one request enters in the server's
// process. Generated code and test/ don't count. It needs root, and a build that counts executed blocks:
//
//	scripts/depth [--files] [--window TIME]
//
// It starts itself as a server with runners on this machine, and is that server's client. The server
// clears its counters just before each request, and writes them just after it. A block counts if most
// repetitions of a request enter it. The last columns are without the blocks that an idle server enters.
// The pool grows and shrinks without the API.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime/coverage"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/commandline"
)

func main() {
	streams := command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(commandline.Execute(&grammar{}, "depth", "Count the files and packages that one request enters.", os.Args[1:], streams))
}

type grammar struct {
	Files  bool          `help:"List the entered files, with the numbers of entered blocks."`
	Window time.Duration `default:"3s" placeholder:"TIME" help:"How long a change of the pool may take, and how long an idle server is observed. (${default})"`
	Server bool          `hidden:""`
}

// Run measures, or is the measured server.
func (g *grammar) Run(s command.Streams) error {
	ctx, stop := commandline.UntilSignal()
	defer stop()
	if g.Server {
		return serve(ctx, s.In, s.Out)
	}
	return measure(ctx, s.Out, g.Window, g.Files)
}

// serve runs a server until its input ends. It prints the server's URL, and the result of each command
// that it reads: "clear" the counters, "write" them to a directory, "keep" a number of idle runners.
func serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var b bed.Bed
	defer func() { err = errors.Join(err, b.Close()) }()
	engine, err := b.Engine(ctx, 1)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, engine.URL())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var err error
		switch command, argument, _ := strings.Cut(lines.Text(), " "); command {
		case "clear":
			err = coverage.ClearCounters()
		case "write":
			err = errors.Join(coverage.WriteMetaDir(argument), coverage.WriteCountersDir(argument))
		case "keep":
			runners, _ := strconv.Atoi(argument)
			err = engine.PutEnvironment(ctx, bed.Environment, runners)
		}
		_, _ = fmt.Fprintln(out, err)
	}
	return nil
}

// A driver is the client of the measured server.
type driver struct {
	*client.Client
	commands io.Writer
	results  *bufio.Scanner
	window   time.Duration
	runner   string // a claimed one
}

// requests are in the order of their execution. A request leaves this many idle runners; 0 means unknown.
var requests = []struct {
	name string
	idle int
	do   func(d *driver, ctx context.Context) error
}{
	{"nothing", 1, (*driver).elapse},
	{"startExecution", 1, (*driver).start},
	{"uploadFile", 1, func(d *driver, ctx context.Context) error {
		return d.UploadFile(ctx, d.runner, "file", "", false, 5, strings.NewReader("text\n"))
	}},
	{"make a runner", 2, func(d *driver, ctx context.Context) error { return errors.Join(d.tell("keep 2"), d.elapse(ctx)) }},
	{"remove a runner", 1, func(d *driver, ctx context.Context) error { return errors.Join(d.tell("keep 1"), d.elapse(ctx)) }},
	{"run true", 0, (*driver).run},
}

// tell sends the server a command and waits until it is done.
func (d *driver) tell(command string) error {
	_, _ = fmt.Fprintln(d.commands, command)
	d.results.Scan()
	if result := d.results.Text(); result != "<nil>" {
		return fmt.Errorf("%s: the server said %q", command, result)
	}
	return nil
}

// elapse waits for work. A request that asks whether it is done would enter more files.
func (d *driver) elapse(context.Context) error { <-time.After(d.window); return nil }

// start starts a program and follows it to its first output. The program ends before the next request.
func (d *driver) start(ctx context.Context) error {
	script := fmt.Sprintf("echo; exec sleep %f", d.window.Seconds()/2)
	execution, err := client.Start(ctx, d, client.StartExecutionInput{RunnerId: d.runner, Command: []string{"sh", "-c", script}})
	if err != nil {
		return err
	}
	return d.follow(ctx, execution, "ExecutionOutput")
}

// run runs true in a runner of its own and follows it to its end.
func (d *driver) run(ctx context.Context) error {
	var out struct {
		Run struct{ Execution struct{ ID string } }
	}
	input := map[string]any{"environmentId": bed.Environment, "command": []string{"true"}}
	if err := d.Do(ctx, `mutation($input: RunInput!) { run(input: $input) { execution { id } } }`, map[string]any{"input": input}, &out); err != nil {
		return err
	}
	return d.follow(ctx, out.Run.Execution.ID, "ExecutionFinished")
}

// follow subscribes to an execution's events until the first one of a type.
func (d *driver) follow(ctx context.Context, execution, last string) error {
	seen := errors.New("seen")
	err := d.Follow(ctx, execution, nil, func(e client.Event) error {
		if e.Type == last {
			return seen
		}
		return nil
	})
	if errors.Is(err, seen) {
		return nil
	}
	return err
}

const repetitions = 5

// measure starts a server, repeats all requests, and prints the table.
func measure(ctx context.Context, out io.Writer, window time.Duration, files bool) (err error) {
	server := exec.Command("/proc/self/exe", "--server")
	server.Stderr = os.Stderr
	stdin, failed := server.StdinPipe()
	stdout, err := server.StdoutPipe()
	if err := errors.Join(failed, err, server.Start()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stdin.Close(), server.Wait()) }() // it removes its runners
	d := &driver{commands: stdin, results: bufio.NewScanner(stdout), window: window}
	d.results.Scan()
	d.Client = client.New(d.results.Text())
	if d.runner, err = client.Claim(ctx, d, bed.ClaimInput()); err != nil {
		return err
	}
	entered := map[[2]string]int{} // by request and block: in how many repetitions
	for range repetitions {
		for _, r := range requests {
			blocks, err := d.entered(ctx, r.idle, r.do)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			for _, block := range blocks {
				entered[[2]string{r.name, block}]++
			}
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "request\tfiles\tpackages\tfiles (not idle)\tpackages (not idle)")
	for _, r := range requests {
		all, more := map[string]int{}, map[string]int{} // entered blocks, by file
		packages, morePackages := map[string]bool{}, map[string]bool{}
		for key, times := range entered {
			if key[0] != r.name || times <= repetitions/2 && r.name != "nothing" { // an idle server acts at intervals
				continue
			}
			file, _, _ := strings.Cut(key[1], ":")
			all[file]++
			packages[path.Dir(file)] = true
			if entered[[2]string{"nothing", key[1]}] == 0 {
				more[file]++
				morePackages[path.Dir(file)] = true
			}
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", r.name, len(all), len(packages), len(more), len(morePackages))
		for _, file := range slices.Sorted(maps.Keys(all)) {
			if files {
				_, _ = fmt.Fprintf(table, "  %s\t%d\t\t%d\t\n", file, all[file], more[file])
			}
		}
	}
	return table.Flush()
}

// entered does a request once, when the server has nothing else to do. It returns the entered blocks,
// for example "runtime/id.go:12.2,14.3": file, lines and columns.
func (d *driver) entered(ctx context.Context, idle int, do func(*driver, context.Context) error) (blocks []string, err error) {
	dir, err := os.MkdirTemp("", "rockpool-depth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var pool *client.GetPoolResponse
	settled := func() (_ bool, err error) {
		pool, err = client.GetPool(ctx, d, bed.Environment)
		return err == nil && pool.Environment.Pool.Starting+pool.Environment.Pool.Stopping == 0, err
	}
	if err := errors.Join(bed.Until(ctx, settled), d.elapse(ctx)); err != nil {
		return nil, err
	}
	if err := errors.Join(d.tell("clear"), do(d, ctx), d.tell("write "+dir)); err != nil {
		return nil, err
	}
	done, err := settled()
	text, failed := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i", dir, "-o", "/dev/stdout").Output()
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("read the pool and the counters: %w", err)
	}
	if idle > 0 && (!done || pool.Environment.Pool.Idle != idle) {
		return nil, fmt.Errorf("the pool changes for longer than %s: use --window", d.window)
	}
	for line := range strings.Lines(string(text)) { // module/runtime/id.go:12.2,14.3 statements count
		block, own := strings.CutPrefix(line, "github.com/rockpool/rockpool/")
		file, _, _ := strings.Cut(block, ":")
		if own && !strings.HasPrefix(file, "test/") && path.Dir(file) != "graph/generated" && !strings.HasSuffix(block, " 0\n") {
			blocks = append(blocks, block[:strings.IndexByte(block, ' ')])
		}
	}
	return blocks, nil
}
