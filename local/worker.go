package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of what a start waits for.
const (
	createWithin = 30 * time.Second
	answerWithin = 10 * time.Second
	cleanWithin  = 15 * time.Second
)

// work makes sandboxes until ctx ends.
func (c *Cluster) work(ctx context.Context) {
	for {
		e, making := c.next(ctx)
		if e == nil {
			return
		}
		err := c.make(making, e)
		if err != nil && making.Err() == nil {
			c.log.Warn("a runner could not be started", zap.String("runner", string(e.id)), zap.Error(err))
			if err := c.startFailed(making, e, err); err != nil {
				c.log.Warn("a runner that could not be started isn't cleaned up yet", zap.String("runner", string(e.id)), zap.Error(err))
			}
		}
		e.making.cancel(nil)
		close(e.making.done)
		c.changes.send(e.environment)
	}
}

// next waits for an entry to make and returns it with the context of its
// making, and nil when ctx ends.
func (c *Cluster) next(ctx context.Context) (*entry, context.Context) {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock() // nobody is between its look at ctx and its Wait
		defer c.mu.Unlock()
		c.queued.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil {
		e := c.queue.pop()
		if e == nil {
			c.queued.Wait()
			continue
		}
		if e.runner.State != runtime.RunnerStarting || e.removing != nil {
			continue // removed while it waited
		}
		own, cancel := context.WithCancelCause(ctx)
		e.making = &making{cancel: cancel, done: make(chan struct{})}
		e.touched = true
		return e, own
	}
	return nil, nil
}

// make makes e's sandbox, waits until its agent answers, and lets it be IDLE.
// After an error something may be left.
func (c *Cluster) make(ctx context.Context, e *entry) error {
	answer, err := c.create(ctx, e)
	if err != nil {
		return err
	}
	process, err := openProcess(answer.PID, answer.Start)
	if err != nil {
		return fmt.Errorf("its agent ended at once: %w", err)
	}
	if err := c.ping(ctx, e.id); err != nil {
		_ = process.Close()
		return fmt.Errorf("its agent didn't answer: %w", err)
	}
	err = e.write(ctx, func() error {
		c.mu.Lock()
		r := e.runner
		c.mu.Unlock()
		r.State = runtime.RunnerIdle
		if err := c.put(ctx, e, r); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !e.advance(runtime.RunnerIdle) {
			return errors.New("it is being removed")
		}
		e.groups, e.process = &answer.Groups, process
		c.tasks.Go(func() { c.watch(e, process) })
		return nil
	})
	if err != nil {
		_ = process.Close()
	}
	return err
}

// create has the helper make the sandbox around a socket that only the agent
// holds afterwards, so that a connection is refused as soon as it is dead.
func (c *Cluster) create(ctx context.Context, e *entry) (helper.Answer, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.socketPath(e.id)})
	if err != nil {
		return helper.Answer{}, err
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return helper.Answer{}, err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	c.mu.Lock()
	env := e.runner.Environment
	c.mu.Unlock()
	spec := sandbox.Spec(env, c.machine, c.rootDir(), e.private.Group, e.private.Slot)
	return c.launcher.Create(ctx, string(e.id), spec, file)
}

func (c *Cluster) ping(ctx context.Context, id runtime.RunnerID) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := c.dial(ctx, id)
	if err != nil {
		return err
	}
	_, err = agent.PingAgent(ctx, conn)
	return err
}

// startFailed removes what there is of e's sandbox and lets e be GONE. What
// can't be removed now, Remove will try again.
func (c *Cluster) startFailed(ctx context.Context, e *entry, cause error) error {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	err := c.launcher.Remove(clean, string(e.id), e.private.Group)
	c.mu.Lock()
	e.touched = err != nil
	c.mu.Unlock()
	message := "the sandbox could not be made; the server's log says why"
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		message = "the sandbox wasn't ready in time"
	case strings.Contains(cause.Error(), "OOM-killed"): // libcontainer's words
		message = "its memory limit is too low"
	}
	return errors.Join(err, c.end(clean, e, runtime.GoneStartFailed, message))
}

// end lets e be GONE and stores that.
func (c *Cluster) end(ctx context.Context, e *entry, reason runtime.GoneReason, message string) error {
	return e.write(ctx, func() error {
		c.mu.Lock()
		ended := e.advance(runtime.RunnerGone)
		if ended {
			e.runner.GoneReason, e.runner.Message = reason, message
		}
		r := e.runner
		c.mu.Unlock()
		if !ended {
			return nil
		}
		return c.put(ctx, e, r)
	})
}
