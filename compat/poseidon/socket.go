package poseidon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
)

// Timeouts of a WebSocket.
const (
	patience  = 2 * time.Minute  // of a write while the peer reads nothing
	keepalive = 12 * time.Second // without a message, after which a peer gets a ping
	closeTime = time.Second      // for the last frames, and then for the peer's close frame
	quitGrace = 3 * time.Second  // between SIGQUIT and the release of the runner, after the peer closed the WebSocket
)

// errTold says that something failed, and the peer received the error.
var errTold = errors.New("the peer received the error")

// errLeft says that the peer closed its WebSocket, or stopped answering pings.
var errLeft = errors.New("the peer closed the WebSocket")

// follow starts a pending execution, once, and serves its WebSocket.
func (a *api) follow(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.mayExecute(r); err != nil {
		return err
	}
	runner, err := a.runner(r)
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return status{http.StatusBadRequest, "this route needs a WebSocket"}
	}
	id := r.URL.Query().Get("executionID")
	// An unknown id gets 404, which is possible only before the handshake.
	if !a.pending.has(runner.ID, id) {
		return status{http.StatusNotFound, noneWaits}
	}
	if err := compat.ReservationOf(r).Subscribe(); err != nil {
		return err
	}
	done, err := a.Engine.Callers.AcquireSubscription(r.Context())
	if err != nil {
		return err
	}
	defer done()
	var x runtime.Execution // with the runner's inactivity timeout as its time limit
	a.accept(w, r, func(ctx context.Context) (runtime.Execution, error) {
		in, there := a.pending.take(runner.ID, id) // only now, so that a failed handshake doesn't use it up
		if !there {
			return runtime.Execution{}, runtime.Errorf(runtime.CodeExecutionNotFound, noneWaits) // another WebSocket was faster
		}
		idle := int(runner.Claim.InactivityTimeout / time.Second)
		if idle == 0 || *in.TimeLimit > 0 && *in.TimeLimit <= idle {
			return a.Engine.Executions.Start(ctx, in)
		}
		in.TimeLimit = &idle
		started, err := a.Engine.Executions.Start(ctx, in)
		x = started
		return started, err
	})
	if x.ID != "" {
		a.endInactive(r.Context(), x)
	}
	return nil
}

// endInactive releases the runner of an execution that ran into the runner's inactivity timeout. In
// Poseidon a running program isn't activity, but the start of another one is.
func (a *api) endInactive(ctx context.Context, x runtime.Execution) {
	now, err := a.Engine.Executions.Get(ctx, x.ID, 0)
	if err != nil || now.End.Outcome != runtime.OutcomeTimeLimit || a.pending.any(x.RunnerID) {
		return
	}
	others, err := a.Engine.Executions.List(ctx, request.Executions{RunnerID: x.RunnerID, States: []runtime.ExecutionState{runtime.ExecutionPending, runtime.ExecutionRunning}}, 1, "")
	if err != nil || len(others.Executions) > 0 {
		return // the last one releases it, or the claim's own timeout
	}
	if _, err := a.Engine.Runners.Release(ctx, x.RunnerID); err != nil && ctx.Err() == nil {
		a.Logger.Warn("an inactive runner can't be released", zap.String("runner", string(x.RunnerID)), zap.Error(err))
		return
	}
	a.pending.drop(x.RunnerID)
}

// noneWaits is the message about an execution's id that is unknown, expired, or already used.
const noneWaits = "no execution waits under this id: each can be started once, within a minute of its request"

// A starter starts the execution of a WebSocket.
type starter func(ctx context.Context) (runtime.Execution, error)

// accept opens a WebSocket, and serves it.
func (a *api) accept(w http.ResponseWriter, r *http.Request, start starter) {
	hijack := &clients.Hijacker{ResponseWriter: w, Patience: patience}
	ws, err := websocket.Accept(hijack, r, &websocket.AcceptOptions{
		CompressionMode:    websocket.CompressionDisabled,
		InsecureSkipVerify: true, // the server has checked the origin before
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			// The library must not write, since its frame could split one of ours. This write waits if the peer doesn't read.
			_, _ = hijack.Conn.Write(clients.Frame(clients.OpPong, payload))
			return false
		},
	})
	if err != nil {
		return // Accept has sent the error
	}
	ws.SetReadLimit(-1) // input bounds the buffered bytes
	(&connection{api: a, ws: ws, conn: hijack.Conn, input: newInput(compat.ReservationOf(r), a.inputStall), read: make(chan struct{})}).serve(r.Context(), start)
}

// A connection is one WebSocket and its execution.
type connection struct {
	*api
	ws    *websocket.Conn // only for reading
	conn  *clients.GuardedConn
	input *input
	read  chan struct{} // closed when reading has ended
}

// serve starts an execution and serves it. It ends when the execution, the peer or ctx does.
func (c *connection) serve(ctx context.Context, start starter) {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(following, func() { c.conn.LimitWrites(c.closeTime) })()
	c.input.fail, c.input.ended = end, following.Done()
	kept := make(chan struct{})
	go func() { // reads until the peer closes, whatever happens here
		defer close(c.read)
		end(c.receive(context.WithoutCancel(ctx))) // the library closes the connection when a read's context ends
	}()
	go func() {
		defer close(kept)
		end(c.keep(following))
	}()
	// The start isn't cancelled: without the execution's id, abandon couldn't end it.
	x, err := start(context.WithoutCancel(following))
	if err == nil {
		err = c.run(following, x)
	} else {
		err = c.failed(following, err)
	}
	// If stdin stalled, that is why the connection failed: report it.
	if refused := c.input.refused(); err != nil && refused != nil {
		err = c.failed(ctx, refused)
	}
	end(nil)
	switch {
	case err == nil, errors.Is(err, errTold):
		c.close(websocket.StatusNormalClosure)
	case ctx.Err() != nil:
		c.close(websocket.StatusGoingAway) // the server stops, or the token has ended; the execution continues
	}
	_ = c.ws.CloseNow()
	<-c.read
	<-kept
	// The execution has lost its client. When the server stops, it continues.
	if err != nil && ctx.Err() == nil && x.ID != "" {
		c.abandon(ctx, x)
	}
}

// close sends a close frame, and waits closeTime for the peer's.
func (c *connection) close(code websocket.StatusCode) {
	if c.conn.WriteLast(clients.Frame(clients.OpClose, []byte{byte(code >> 8), byte(code)})) == nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.closeTime))
		<-c.read
	}
}

func (c *connection) send(text []byte) error {
	_, err := c.conn.WriteAll(net.Buffers{clients.AppendFrameHeader(nil, clients.OpText, len(text)), text})
	return err
}

// receive passes messages on as stdin. It returns when the peer has closed the WebSocket.
func (c *connection) receive(ctx context.Context) error {
	piece := make([]byte, inputBlock)
	for {
		_, message, err := c.ws.Reader(ctx)
		if err == nil {
			_, err = io.CopyBuffer(c.input, message, piece)
		}
		if err != nil {
			return errLeft
		}
	}
}

// keep sends pings, and returns when the peer doesn't answer any longer.
func (c *connection) keep(ctx context.Context) error {
	ticks := time.NewTicker(c.keepalive)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		quiet := c.conn.Quiet()
		if vanished, known := clients.Vanished(c.conn.Carrier); vanished || !known && quiet > patience {
			return errLeft
		}
		if quiet < c.keepalive {
			continue
		}
		if _, err := c.conn.Write(clients.Frame(clients.OpPing, nil)); err != nil {
			return errLeft
		}
	}
}

// run sends an execution's events, and passes its input on.
func (c *connection) run(ctx context.Context, x runtime.Execution) error {
	reader, err := c.Engine.Executions.Events(ctx, x.ID, "")
	if err != nil {
		return c.failed(ctx, err)
	}
	defer reader.Close()
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		c.feed(feeding, x.ID)
	}()
	defer func() { stop(); <-fed }()
	out := output{send: c.send}
	for {
		event, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			return c.failed(ctx, err)
		}
		if err := out.event(event); err != nil {
			return err
		}
	}
}

// failed sends an error to the peer. It returns errTold, or why it couldn't.
func (c *connection) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if runtime.CodeOf(err) == runtime.CodeInternal {
		c.Logger.Error("a WebSocket of the API poseidon failed", zap.Error(err))
	}
	if err := (output{send: c.send}).frame(errorFrame, message(err)); err != nil {
		return err
	}
	return errTold
}

// feed passes input on as the program reads it. It drops what can't be passed on.
func (c *connection) feed(ctx context.Context, id runtime.ExecutionID) {
	piece := make([]byte, inputBlock)
	sent, dropping := int64(0), false
	for ctx.Err() == nil {
		n := c.input.take(piece)
		if n == 0 {
			select {
			case <-c.input.more:
			case <-ctx.Done():
			}
			continue
		}
		for !dropping && ctx.Err() == nil {
			taken, err := c.Engine.Executions.WriteStdin(ctx, request.Stdin{ExecutionID: id, Data: piece[:n], Offset: &sent}) // a retry continues at sent
			if err == nil {
				sent = taken
				break
			}
			dropping = runtime.CodeOf(err) != runtime.CodeLimitExceeded
		}
	}
}

// abandon ends an execution without a client, by SIGQUIT or with its runner.
func (c *connection) abandon(ctx context.Context, x runtime.Execution) {
	quitting, cancel := context.WithTimeout(ctx, c.quitGrace)
	defer cancel()
	_, _ = c.Engine.Executions.Signal(quitting, x.ID, "QUIT") // if it fails, the runner is released
	now, err := c.Engine.Executions.Get(ctx, x.ID, c.quitGrace)
	if err == nil && now.State == runtime.ExecutionFinished {
		return
	}
	if _, err := c.Engine.Runners.Release(ctx, x.RunnerID); err != nil && ctx.Err() == nil {
		c.Logger.Warn("a runner whose client closed its WebSocket can't be released", zap.String("runner", string(x.RunnerID)), zap.Error(err))
		return
	}
	c.pending.drop(x.RunnerID)
}

// The types of frames.
const (
	startFrame   = "start"
	stdoutFrame  = "stdout"
	stderrFrame  = "stderr"
	exitFrame    = "exit"
	timeoutFrame = "timeout"
	errorFrame   = "error"
)

// outOfMemory is the text that CodeOcean recognizes.
const outOfMemory = "the allocation was OOM Killed"

// An output converts events to frames. Clients reject a frame with an additional field.
type output struct {
	send func(frame []byte) error
}

// frame sends a frame of a type. It has the field data only if data is given.
func (o output) frame(kind string, data ...any) error {
	var frame bytes.Buffer
	body := any(struct {
		Type string `json:"type"`
	}{kind})
	if len(data) > 0 {
		body = struct {
			Type string `json:"type"`
			Data any    `json:"data"`
		}{kind, data[0]}
	}
	if err := encoder(&frame).Encode(body); err != nil {
		return err
	}
	return o.send(bytes.TrimSuffix(frame.Bytes(), []byte("\n")))
}

// event sends the frames for an event of the execution.
func (o output) event(event events.Event) error {
	switch event.Kind {
	case events.Started:
		return o.frame(startFrame)
	case events.Output:
		return o.text(event.Stream, event.Text())
	case events.Lost:
		return o.frame(stderrFrame, "\r\n[output is missing here: "+event.Reason+"]\r\n")
	case events.Finished:
		return o.end(event.Execution.End)
	}
	return nil
}

// text sends output of a stream. It sends nothing if text is empty.
func (o output) text(stream runtime.Stream, text string) error {
	switch {
	case text == "":
		return nil
	case stream == runtime.Stderr:
		return o.frame(stderrFrame, text)
	}
	return o.frame(stdoutFrame, text)
}

// end sends the last frame.
func (o output) end(end runtime.End) error {
	switch end.Outcome {
	case runtime.OutcomeExited:
		return o.frame(exitFrame, end.ExitCode&0xff)
	case runtime.OutcomeSignaled:
		return o.frame(exitFrame, 128+int(unix.SignalNum(end.Signal))&0x7f) // as in shells
	case runtime.OutcomeTimeLimit, runtime.OutcomeCPULimit:
		return o.frame(timeoutFrame)
	case runtime.OutcomeMemoryLimit:
		return o.frame(errorFrame, outOfMemory)
	case runtime.OutcomeProcessLimit: // in Poseidon the fork fails, and the program exits itself
		return errors.Join(o.frame(stderrFrame, "\r\n"+end.Message+"\r\n"), o.frame(exitFrame, 1))
	case runtime.OutcomeRunnerGone:
		switch end.GoneReason {
		case runtime.GoneOutOfMemory:
			return o.frame(errorFrame, outOfMemory)
		case runtime.GoneInactivity:
			return o.frame(timeoutFrame)
		}
	}
	return o.frame(errorFrame, end.Message)
}
