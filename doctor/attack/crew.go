package attack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type object = map[string]any

// A crew carries out attacks on one server.
type crew struct {
	Place
	prober       []byte
	environment  string
	environments []string         // to delete
	neighbour    string           // a runner that has nothing to do with any attack
	gentle       map[Reach]string // those for gentle attacks
}

// room is what runners of the corpus have: little, since it is going to be
// overstepped.
var room = object{"memoryMiB": 64, "processes": 32, "cpuMHz": CPUMHz, "workspaceMiB": 8}

// CPUMHz is the share of runners.
const CPUMHz = 1000

// mostOutput is what an execution may print.
const mostOutput = 1 << 20

// settle makes the environment and claims the neighbour.
func (c *crew) settle(ctx context.Context) (version string, err error) {
	c.environment, c.gentle = "attack-"+strings.ToLower(rand.Text()[:8]), map[Reach]string{}
	var out struct{ Version string }
	if err := c.Server.Ask(ctx, `{ version }`, nil, &out); err != nil {
		return "", err
	}
	if err := c.put(ctx, c.environment, object{"poolSize": 2}); err != nil {
		return "", err
	}
	c.neighbour, err = c.claim(ctx, c.environment)
	if err == nil {
		_ = c.Outside.Limited(c.neighbour) // for each bomb it is asked again, and listened to
	}
	return out.Version, err
}

// put makes an environment.
func (c *crew) put(ctx context.Context, id string, more object) error {
	resources := maps.Clone(room)
	maps.Copy(resources, c.Limits)
	limit := mostOutput
	if n, given := resources["outputLimit"]; given {
		limit = n.(int)
		delete(resources, "outputLimit")
	}
	input := object{"id": id, "resources": resources, "isolation": c.Tier, "outputLimit": limit}
	if c.Image != "" {
		input["image"] = c.Image
	}
	maps.Copy(input, more)
	c.environments = append(c.environments, id)
	return c.Server.Ask(ctx, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": input}, nil)
}

// environmentOf returns the environment of runners with a network, and makes it
// the first time.
func (c *crew) environmentOf(ctx context.Context, r Reach) (string, error) {
	if r == Offline {
		return c.environment, nil
	}
	id := c.environment + "-" + string(r)
	if slices.Contains(c.environments, id) {
		return id, nil
	}
	input := maps.Clone(r.input())
	maps.Copy(input, c.Networks)
	return id, c.put(ctx, id, object{"poolSize": 1, "network": input})
}

// leave deletes what the crew made.
func (c *crew) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, id := range c.environments {
		errs = append(errs, c.Server.Ask(ctx, `mutation($id: ID!) { deleteEnvironment(input: {id: $id, endClaimed: true}) { deleted } }`, object{"id": id}, nil))
	}
	return errors.Join(errs...)
}

func (c *crew) claim(ctx context.Context, environment string) (string, error) {
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	err := c.Server.Ask(ctx, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`,
		object{"in": object{"environmentId": environment, "waitFor": 45}}, &out)
	return out.ClaimRunner.Runner.ID, err
}

// arm puts the prober into a runner.
func (c *crew) arm(ctx context.Context, runner string) error {
	return c.Server.Upload(ctx, `mutation($id: ID!, $path: String!, $file: Upload!) { uploadFile(runnerId: $id, path: $path, file: $file, mode: "0755") { file { size } } }`,
		object{"id": runner, "path": c.placed(proberPath)}, int64(len(c.prober)), bytes.NewReader(c.prober), nil)
}

func (c *crew) release(ctx context.Context, runner string) error {
	return c.Server.Ask(ctx, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
}

// begin starts a command, and returns its execution.
func (c *crew) begin(ctx context.Context, runner string, s Step) (string, error) {
	input := object{"runnerId": runner, "timeLimit": s.seconds, "privileged": s.root}
	if s.script != "" {
		input["shell"] = c.placed(c.fill(s.script, plain))
	} else {
		var argv []string
		for _, arg := range s.command {
			argv = append(argv, c.placed(c.fill(arg, plain)))
		}
		input["command"] = argv
	}
	if s.terminal {
		input["terminal"] = object{"columns": 80, "rows": 24}
	}
	if s.limits != nil && !c.Unlimited {
		input["limits"] = s.limits
	}
	if c.Unlimited {
		input["timeLimit"] = 0
	}
	var out struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	err := c.Server.Ask(ctx, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": input}, &out)
	return out.StartExecution.Execution.ID, err
}

// placed is a text with the place where the prober is.
func (c *crew) placed(text string) string {
	return strings.ReplaceAll(text, proberPath, cmp.Or(c.Prober, proberPath))
}

func plain(text string) string { return text }

// An ending is what became of an execution, so far.
type ending struct {
	State, Outcome, Signal string
	GoneReason             string
	ExitCode               *int
	Output                 struct{ Chunks []struct{ Text string } }
}

// mostSeen is how much of what a program prints is looked at.
const mostSeen = 8 << 10

func (e ending) text() string {
	var text strings.Builder
	for _, chunk := range e.Output.Chunks {
		if text.Len()+len(chunk.Text) > mostSeen {
			break
		}
		text.WriteString(chunk.Text)
	}
	return text.String()
}

func (e ending) String() string {
	text := e.text()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	switch {
	case e.ExitCode != nil:
		return fmt.Sprintf("%s=> %s %d", text, e.Outcome, *e.ExitCode)
	case e.GoneReason != "":
		return fmt.Sprintf("%s=> %s %s", text, e.Outcome, e.GoneReason)
	case e.Signal != "":
		return fmt.Sprintf("%s=> %s %s", text, e.Outcome, e.Signal)
	}
	return text + "=> " + e.Outcome
}

func (c *crew) look(ctx context.Context, execution string, seconds int) (ending, error) {
	var out struct{ Execution ending }
	err := c.Server.Ask(ctx, `query($id: ID!, $wait: Int) { execution(id: $id, waitFor: $wait) { state outcome signal exitCode goneReason output(maxBytes: 8192) { chunks { text } } } }`,
		object{"id": execution, "wait": seconds}, &out)
	return out.Execution, err
}

// patience is how many seconds an execution may take to end after its time.
const patience = 8

// execute runs a command to its end.
func (c *crew) execute(ctx context.Context, runner string, s Step) (string, error) {
	id, err := c.begin(ctx, runner, s)
	if err != nil {
		return refusal(err)
	}
	end, err := c.look(ctx, id, s.seconds+patience)
	if err == nil && end.State != "FINISHED" {
		return "=> it doesn't end", nil
	}
	return end.String(), err
}

// leaveBehind starts a command and returns once it has printed something, or
// ended.
func (c *crew) leaveBehind(ctx context.Context, runner string, s Step) (string, error) {
	id, err := c.begin(ctx, runner, s)
	if err != nil {
		return refusal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond) // output can't be waited for otherwise with a query
	defer tick.Stop()
	for {
		now, err := c.look(ctx, id, 0)
		if err != nil || now.State == "FINISHED" || len(now.Output.Chunks) > 0 {
			return now.String(), err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// refusal tells what the API refused something with; other errors are ours.
func refusal(err error) (string, error) {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Extensions.Code != "" && refused.Extensions.Code != runtime.CodeInternal {
		return fmt.Sprintf("=> refused %s %s", refused.Extensions.Code, refused.Extensions.Field), nil
	}
	return "", err
}

// upload writes a file.
func (c *crew) upload(ctx context.Context, runner string, s Step) (string, error) {
	err := c.Server.Upload(ctx, `mutation($id: ID!, $path: String!, $file: Upload!) { uploadFile(runnerId: $id, path: $path, file: $file) { file { size } } }`,
		object{"id": runner, "path": c.fill(s.path, plain)}, int64(len(s.text)), strings.NewReader(s.text), nil)
	if err != nil {
		return refusal(err)
	}
	return "=> uploaded", nil
}

// read downloads a file.
func (c *crew) read(ctx context.Context, runner string, s Step) (string, error) {
	var out struct {
		Runner struct {
			File *struct {
				Type        string
				Size        int64
				DownloadURL *string
			}
		}
	}
	err := c.Server.Ask(ctx, `query($id: ID!, $path: String!) { runner(id: $id) { file(path: $path) { type size downloadUrl } } }`,
		object{"id": runner, "path": c.fill(s.path, plain)}, &out)
	switch file := out.Runner.File; {
	case err != nil:
		return refusal(err)
	case file == nil:
		return "=> no file", nil
	case file.DownloadURL == nil:
		return "=> " + file.Type + ", not to be downloaded", nil
	default:
		body, _, err := c.Server.Download(ctx, *file.DownloadURL, 0)
		if err != nil {
			return refusal(err)
		}
		defer body.Close()
		text, err := io.ReadAll(io.LimitReader(body, mostSeen))
		if err != nil {
			return "=> broke off", nil //nolint:nilerr // it is what is seen
		}
		return fmt.Sprintf("%s\n=> %s of %d bytes", text, file.Type, file.Size), nil
	}
}

// list lists a directory with all below.
func (c *crew) list(ctx context.Context, runner string, s Step) (string, error) {
	var out struct {
		Runner struct {
			Files struct {
				Nodes []struct {
					Path, Type string
					LinkTarget *string
				}
			}
		}
	}
	err := c.Server.Ask(ctx, `query($id: ID!, $path: String!) { runner(id: $id) { files(path: $path, recursive: true, first: 1000) { nodes { path type linkTarget } } } }`,
		object{"id": runner, "path": c.fill(s.path, plain)}, &out)
	if err != nil {
		return refusal(err)
	}
	var text strings.Builder
	for _, n := range out.Runner.Files.Nodes {
		if text.Len() < mostSeen {
			fmt.Fprintf(&text, "%s %s\n", n.Type, n.Path)
		}
	}
	return fmt.Sprintf("%s=> %d listed", text.String(), len(out.Runner.Files.Nodes)), nil
}
