package attack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// An executor runs attacks on one server. It isn't safe for concurrent use.
type executor struct {
	Target
	prober       []byte
	environment  string
	environments []string         // to delete
	neighbour    string           // a runner that no attack uses
	gentle       map[Reach]string // the shared runners of gentle attacks
}

// CPUMHz is the CPU share of attacked runners.
const CPUMHz = 1000

// prepare creates the environment and claims the neighbour. It returns the server's version.
func (c *executor) prepare(ctx context.Context) (version string, err error) {
	c.environment, c.gentle = "attack-"+strings.ToLower(rand.Text()[:8]), map[Reach]string{}
	out, err := client.GetVersion(ctx, c.Server)
	if err != nil {
		return "", err
	}
	if err := c.put(ctx, client.PutEnvironmentInput{Id: c.environment, PoolSize: new(2)}); err != nil {
		return "", err
	}
	c.neighbour, err = c.claim(ctx, c.environment)
	if err == nil {
		_ = c.Outside.Limited(c.neighbour) // the error doesn't matter yet: it is checked again before each bomb
	}
	return out.Version, err
}

// put creates an environment for attacked runners. Their resources are small, because attacks try to
// exceed them.
func (c *executor) put(ctx context.Context, input client.PutEnvironmentInput) error {
	input.Resources = &client.ResourcesInput{MemoryMiB: new(64), Processes: new(32), CpuMHz: new(CPUMHz), WorkspaceMiB: new(8)}
	input.Isolation, input.OutputLimit = &c.Tier, new(int64(1<<20))
	if c.Image != "" && input.Image == nil {
		input.Image = &c.Image
	}
	err := errors.Join(overlay(&input, c.Limits), overlay(input.Resources, c.Limits))
	if input.Network != nil {
		err = errors.Join(err, overlay(input.Network, c.Networks))
	}
	if err != nil {
		return err
	}
	c.environments = append(c.environments, input.Id)
	return client.Put(ctx, c.Server, input)
}

// overlay sets the named fields of an input. It ignores names that the input doesn't have.
func overlay(input any, named map[string]any) error {
	text, err := json.Marshal(named)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, input)
}

// environmentOf returns the environment of an attack's runners. It creates it on first use.
func (c *executor) environmentOf(ctx context.Context, a Attack) (string, error) {
	input := client.PutEnvironmentInput{PoolSize: new(1)}
	switch {
	case a.Warm:
		input.Id, input.Warm = c.environment+"-warm", &client.WarmInput{Interpreter: "PYTHON", Modules: []string{"decimal", "random"}}
	case a.Reach != Offline:
		input.Id, input.Network = c.environment+"-"+string(a.Reach), a.Reach.input()
	default:
		return c.environment, nil
	}
	if slices.Contains(c.environments, input.Id) {
		return input.Id, nil
	}
	return input.Id, c.put(ctx, input)
}

func (c *executor) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, id := range c.environments {
		errs = append(errs, client.Delete(ctx, c.Server, id))
	}
	return errors.Join(errs...)
}

// claim claims a runner and returns its id. It waits up to 45 s for one.
func (c *executor) claim(ctx context.Context, environment string) (string, error) {
	return client.Claim(ctx, c.Server, client.ClaimRunnerInput{EnvironmentId: environment, WaitFor: new(45)})
}

func (c *executor) begin(ctx context.Context, runner string, s Step) (string, error) {
	input := client.StartExecutionInput{RunnerId: runner, TimeLimit: &s.seconds, Privileged: &s.root}
	if s.script != "" {
		input.Shell = new(c.fill(s.script, plain))
	} else {
		for _, arg := range s.command {
			input.Command = append(input.Command, c.fill(arg, plain))
		}
	}
	if s.terminal {
		input.Terminal = &client.TerminalInput{Columns: 80, Rows: 24}
	}
	if c.Unlimited {
		input.TimeLimit = new(0)
	} else {
		input.Limits = s.limits
	}
	return client.Start(ctx, c.Server, input)
}

// plain is the quote function of fill for text that is sent unchanged.
func plain(text string) string { return text }

// mostSeen bounds the output that is read, in bytes.
const mostSeen = 8 << 10

// result waits for the end of an execution, at most the given seconds, and returns its state and output.
func (c *executor) result(ctx context.Context, execution string, seconds int) (client.Result, error) {
	out, err := client.GetResult(ctx, c.Server, execution, seconds, mostSeen)
	if err != nil {
		return client.Result{}, err
	}
	return out.Execution, nil
}

// patience is the number of seconds that an execution may take to end after its time limit.
const patience = 8

func (c *executor) execute(ctx context.Context, runner string, s Step) (string, error) {
	id, err := c.begin(ctx, runner, s)
	if err != nil {
		return refusal(err)
	}
	end, err := c.result(ctx, id, s.seconds+patience)
	switch {
	case err != nil:
		return "", err
	case end.State != runtime.ExecutionFinished:
		return "=> it doesn't end", nil
	}
	return end.String(), nil
}

// start starts a command, and returns when it has printed something or ended.
func (c *executor) start(ctx context.Context, runner string, s Step) (string, error) {
	id, err := c.begin(ctx, runner, s)
	if err != nil {
		return refusal(err)
	}
	for {
		now, err := c.result(ctx, id, 0)
		if err != nil {
			return "", err
		}
		if now.State == runtime.ExecutionFinished || len(now.Output.Chunks) > 0 {
			return now.String(), nil
		}
		if err := backoff.Sleep(ctx, 20*time.Millisecond); err != nil { // a query can't wait for output
			return "", err
		}
	}
}

// said returns the output of a step: a refusal, if there was an error.
func said(output string, err error) (string, error) {
	if err != nil {
		return refusal(err)
	}
	return output, nil
}

// refusal turns a refusal by the API into output, and returns other errors.
func refusal(err error) (string, error) {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Extensions.Code != "" && refused.Extensions.Code != runtime.CodeInternal {
		return fmt.Sprintf("=> refused %s %s", refused.Extensions.Code, refused.Extensions.Field), nil
	}
	return "", err
}

func (c *executor) read(ctx context.Context, runner string, s Step) (string, error) {
	out, err := client.GetFile(ctx, c.Server, runner, c.fill(s.path, plain))
	if err != nil {
		return refusal(err)
	}
	if out.Runner == nil || out.Runner.File == nil {
		return "=> no file", nil
	}
	file := out.Runner.File
	if file.DownloadUrl == nil {
		return "=> " + string(file.Type) + ", not to be downloaded", nil
	}
	body, _, err := c.Server.Download(ctx, *file.DownloadUrl, 0)
	if err != nil {
		return refusal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, mostSeen))
	if err != nil {
		return "=> broke off", nil //nolint:nilerr // a broken download is a valid result
	}
	return fmt.Sprintf("%s\n=> %s of %d bytes", text, file.Type, file.Size), nil
}

func (c *executor) list(ctx context.Context, runner string, s Step) (string, error) {
	out, err := client.GetFiles(ctx, c.Server, runner, new(c.fill(s.path, plain)), new(1000), nil)
	if err != nil {
		return refusal(err)
	}
	if out.Runner == nil {
		return "=> 0 listed", nil
	}
	var text strings.Builder
	for _, n := range out.Runner.Files.Nodes {
		if text.Len() < mostSeen {
			fmt.Fprintf(&text, "%s %s\n", n.Type, n.Path)
		}
	}
	return fmt.Sprintf("%s=> %d listed", text.String(), len(out.Runner.Files.Nodes)), nil
}

func (c *executor) find(ctx context.Context, runner string, s Step) (string, error) {
	out, err := client.SearchFiles(ctx, c.Server, runner, &s.path, nil, &s.text, new(100))
	if err != nil {
		return refusal(err)
	}
	if out.Runner == nil {
		return "=> 0 found", nil
	}
	var text strings.Builder
	for _, m := range out.Runner.SearchFiles.Matches {
		if text.Len() < mostSeen {
			fmt.Fprintf(&text, "%s: %s\n", m.File.Path, *m.Text)
		}
	}
	return fmt.Sprintf("%s=> %d found", text.String(), len(out.Runner.SearchFiles.Matches)), nil
}
