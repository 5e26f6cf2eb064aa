package poseidon

import (
	"bytes"
	"errors"
	"math/rand/v2"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/wait"
)

// unbounded returns an input without a memory limit, and how it failed.
func unbounded(ended <-chan struct{}) (in *input, failed *error) {
	in, failed = newInput(new(clients.Reservation), inputStall), new(error)
	in.ended, in.fail = ended, func(err error) { *failed = err }
	return in, failed
}

// A Write waits as long as the program reads, however slowly, and inputStall longer.
func TestWriteWaitsWhileTheProgramReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, failed := unbounded(nil)
		sent := make([]byte, maxInput+1<<20)
		_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+rand.IntN(2*inputBlock))
				_, _ = in.Write(rest[:n])
				rest = rest[n:]
			}
		}()
		var got []byte
		for piece := make([]byte, inputBlock); len(got) < len(sent); {
			synctest.Wait()
			n := in.take(piece)
			got = append(got, piece[:n]...)
			if *failed != nil || n == 0 {
				t.Fatalf("after %d of %d bytes: %v", len(got), len(sent), *failed)
			}
			time.Sleep(inputStall - time.Second)
		}
		<-written
		if !bytes.Equal(got, sent) {
			t.Error("other bytes came")
		}
	})
}

// The connection fails inputStall after the buffer is full, and not before.
func TestStalledProgramFailsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, failed := unbounded(nil)
		_, _ = in.Write(make([]byte, maxInput))
		time.Sleep(2 * inputStall)
		if *failed != nil {
			t.Fatalf("with room: %v", *failed)
		}
		began := time.Now()
		_, _ = in.Write([]byte("x"))
		if took := time.Since(began); took != inputStall || runtime.CodeOf(*failed) != runtime.CodeLimitExceeded || !errors.Is(in.refused(), *failed) {
			t.Errorf("after %v: %v, %v", took, *failed, in.refused())
		}
	})
}

// When the connection ends, no Write waits any longer.
func TestEndedConnectionStopsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		in, failed := unbounded(ended)
		time.AfterFunc(time.Second, func() { close(ended) })
		began := time.Now()
		_, _ = in.Write(make([]byte, 2*maxInput))
		if took := time.Since(began); took != time.Second || *failed != nil {
			t.Errorf("after %v: %v", took, *failed)
		}
	})
}

// Memory above FreeBody is charged by blocks, and freed.
func TestMemoryOfInput(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 30, TokenBodies: 1 << 30})
	hold := all.Reserve(t.Context(), clients.Credential{Token: "one"})
	in := newInput(&hold, inputStall)
	piece := make([]byte, inputBlock)
	for _, size := range []int64{1, clients.FreeBody, clients.FreeBody + 1, maxInput} {
		_, _ = in.Write(make([]byte, size))
		want := max((size+inputBlock-1)/inputBlock*inputBlock-clients.FreeBody, 0)
		if got := all.Usage().BodyBytes; got != want {
			t.Errorf("%d bytes count as %d, not %d", size, got, want)
		}
		for in.take(piece) > 0 {
		}
		if got := all.Usage().BodyBytes; got != 0 {
			t.Errorf("%d are left of %d", got, size)
		}
	}
}

// Adding and taking a piece allocates memory for that piece, not for everything in the buffer.
func TestFullInputIsNotCopied(t *testing.T) {
	const rounds = 1000
	in, _ := unbounded(nil)
	_, _ = in.Write(make([]byte, maxInput))
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	piece := make([]byte, inputBlock)
	for range rounds {
		_, _ = in.Write(piece[:in.take(piece)])
	}
	goruntime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*rounds*inputBlock {
		t.Errorf("%d bytes were allocated for %d", took, rounds*inputBlock)
	}
}

// A keystroke needs no memory of the caller. Longer input arrives as the program reads it.
func TestStdinWhileMemoryIsShort(t *testing.T) {
	b := newBed(t, Options{}).as("one", access.Operator)
	b.api.inputStall = wait.Limit
	ws := b.open(b.execute(b.claim(), "cat"))
	ws.SetReadLimit(-1)
	if got := reads(t, ws); got != `{"type":"start"}` {
		t.Fatalf("it begins with %s", got)
	}
	other := b.peers.Reserve(t.Context(), clients.Credential{Token: b.tokenID})
	defer other.Release()
	if err := other.Grow(maxHeld); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"x", strings.Repeat("y", 1<<20)} {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(text); {
			frame, is := strings.CutPrefix(reads(t, ws), `{"type":"stdout","data":"`)
			if !is {
				t.Fatalf("%d bytes of %d came back, then %.200s", got, len(text), frame)
			}
			got += len(strings.TrimSuffix(frame, `"}`))
		}
	}
}

// The WebSocket is closed although a Write waits.
func TestStoppingServerEndsWaitingWrites(t *testing.T) {
	b := newBounded(t, Options{}, clients.Bounds{TokenBodies: 1 << 30}).as("one", access.Operator)
	b.api.inputStall = 2 * wait.Limit
	ws := b.open(b.execute(b.claim(), "sleep 1000"))
	if got := reads(t, ws); got != `{"type":"start"}` {
		t.Fatalf("it begins with %s", got)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for ws.Write(t.Context(), websocket.MessageText, make([]byte, 300<<10)) == nil { // until it is closed
		}
	}()
	wait.For(t, "no room", func() bool { return b.peers.Usage().BodyBytes == maxInput-clients.FreeBody })
	b.stop()
	if got, code := frames(t, ws); len(got) != 0 || code != websocket.StatusGoingAway {
		t.Errorf("it gets %q, and %d", got, code)
	}
	<-sent
}
