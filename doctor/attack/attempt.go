package attack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

type attempt struct {
	*executor
	attack  Attack
	runner  string
	another string
	past    []string // released runners
	steps   []string // output of each step
	alike   bool     // two outputs are equal
}

// seen returns the output of all steps so far. Attack.Held is matched against it.
func (s *attempt) seen() string { return strings.Join(s.steps, "\n") + "\n" }

// run does the steps and records their outputs. It returns an error if the attack couldn't run to its end.
func (s *attempt) run(ctx context.Context) (err error) {
	if s.stays() && s.gentle[s.attack.Reach] != "" {
		s.runner = s.gentle[s.attack.Reach]
	} else if s.runner, err = s.newRunner(ctx); err != nil {
		return err
	}
	if s.stays() {
		s.gentle[s.attack.Reach] = s.runner
	}
	// Earlier attacks used the same runner: their files must not influence this one.
	if s.Sparing {
		empty := shell("find /workspace -mindepth 1 -maxdepth 1 ! -name .prober -exec rm -rf {} +")
		asRoot := empty
		asRoot.root = true // root steps leave files of root; some clusters have no root
		for _, step := range []Step{empty, asRoot} {
			if _, err := s.execute(ctx, s.runner, step); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(s.attack.Steps, func(step Step) bool { return step.other }) {
		if s.another, err = s.newRunner(ctx); err != nil {
			return err
		}
	}
	for _, step := range s.attack.Steps {
		var seen string
		for n := range max(step.repeat, 1) {
			if seen, err = s.do(ctx, step); err != nil {
				return err
			}
			seen = strings.ToValidUTF8(seen, "\ufffd")
			if n < step.repeat-1 && s.succeeded(s.attack, seen+"\n") != "" {
				break // judge sees it in the output of this step
			}
		}
		s.alike = s.alike || slices.Contains(s.steps, seen)
		s.steps = append(s.steps, seen)
	}
	return nil
}

// stays reports whether later attacks use the same runner.
func (s *attempt) stays() bool { return s.attack.Gentle || s.Sparing }

// newRunner claims a runner and uploads the prober if a step needs it. Before a bomb it reads the
// runner's limits back.
func (s *attempt) newRunner(ctx context.Context) (string, error) {
	environment, err := s.environmentOf(ctx, s.attack)
	if err != nil {
		return "", fmt.Errorf("create an environment: %w", err)
	}
	runner, err := s.claim(ctx, environment)
	if err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	if err := s.Outside.Limited(runner); err != nil && s.attack.Bomb {
		return runner, fmt.Errorf("not run, because it could harm the machine: %w", err)
	}
	if s.stays() || slices.ContainsFunc(s.attack.Steps, func(step Step) bool { return strings.Contains(strings.Join(step.command, " ")+step.script, proberPath) }) {
		if err := s.Server.UploadFile(ctx, runner, proberPath, "0755", false, int64(len(s.prober)), bytes.NewReader(s.prober)); err != nil {
			return runner, fmt.Errorf("upload the prober: %w", err)
		}
	}
	return runner, nil
}

func (s *attempt) do(ctx context.Context, step Step) (string, error) {
	runner := s.runner
	if step.other {
		runner = s.another
	}
	if s.another != "" && s.attack.Reach != Offline {
		v4, v6 := s.Outside.Addresses(s.another)
		step.command = slices.Clone(step.command)
		for i, arg := range step.command {
			step.command[i] = strings.NewReplacer("{other4}", v4, "{other6}", v6).Replace(arg)
		}
	}
	switch step.kind {
	case hears:
		if s.Outside.Received(step.text) {
			return "=> it came", nil
		}
		return "=> nothing came", nil
	case starts:
		return s.start(ctx, runner, step)
	case uploads:
		return said("=> uploaded", s.Server.UploadFile(ctx, runner, s.fill(step.path, plain), "", false, int64(len(step.text)), strings.NewReader(step.text)))
	case reads:
		return s.read(ctx, runner, step)
	case lists:
		return s.list(ctx, runner, step)
	case finds:
		return s.find(ctx, runner, step)
	case posts:
		return said("=> taken", s.Server.Post(ctx, []byte(strings.ReplaceAll(step.text, "{runner}", runner)), nil))
	case nexts:
		return s.next(ctx)
	case images:
		return s.image(ctx, step)
	case garbage:
		return "=> sent", s.Outside.Garble(ctx, runner, []byte(step.text))
	default:
		return s.execute(ctx, runner, step)
	}
}

func (s *attempt) next(ctx context.Context) (string, error) {
	if err := client.Release(ctx, s.Server, s.runner); err != nil {
		return "", err
	}
	s.past = append(s.past, s.runner)
	var err error
	s.runner, err = s.newRunner(ctx)
	return "=> next", err
}

// image creates an environment from an image. If that works, the attack continues in one of its runners.
func (s *attempt) image(ctx context.Context, step Step) (string, error) {
	name := s.environment + "-image"
	path := filepath.Join(s.Images, name)
	if err := os.WriteFile(path, archive(step.layer, s.Bait.Path), 0o600); err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(path) }()
	if err := s.put(ctx, client.PutEnvironmentInput{Id: name, Image: new("file:" + name), PoolSize: new(1)}); err != nil {
		return refusal(err)
	}
	defer func() {
		// This fails while its runner is in use: cleanUp tries again.
		_, _ = client.DeleteEnvironment(context.WithoutCancel(ctx), s.Server, client.DeleteEnvironmentInput{Id: name})
	}()
	if refused, err := s.unpacked(ctx, name); refused || err != nil {
		return "=> refused IMAGE by its layers", err
	}
	runner, err := s.claim(ctx, name)
	if err != nil {
		return refusal(err)
	}
	s.past = append(s.past, s.runner)
	if err := client.Release(ctx, s.Server, s.runner); err != nil {
		return "", err
	}
	s.runner = runner
	return "=> a runner", s.Outside.Limited(runner)
}

// unpacked waits until an environment's image is ready or has failed.
func (s *attempt) unpacked(ctx context.Context, environment string) (refused bool, err error) {
	for {
		out, err := client.GetPool(ctx, s.Server, environment)
		if err != nil {
			return false, err
		}
		if image := out.Environment.Pool.Image; image != nil && image.State != runtime.ImagePulling {
			return image.State == runtime.ImageFailed, nil
		}
		if err := backoff.Sleep(ctx, 20*time.Millisecond); err != nil { // a query can't wait for that
			return false, err
		}
	}
}

// cleanUp releases the runners and returns what remains of them.
func (s *attempt) cleanUp(ctx context.Context) (left []string, err error) {
	if s.stays() && s.another == "" {
		return nil, nil // it is removed with the environment
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, runner := range []string{s.runner, s.another} {
		if runner == "" {
			continue
		}
		if err := client.Release(ctx, s.Server, runner); err != nil {
			return nil, fmt.Errorf("the runner can't be released: %w", err)
		}
		s.past = append(s.past, runner)
	}
	for {
		left = nil
		for _, runner := range s.past {
			left = append(left, s.Outside.Left(runner)...)
		}
		if len(left) == 0 || backoff.Sleep(ctx, 10*time.Millisecond) != nil { // a query can't wait for a removal
			return left, nil
		}
	}
}
