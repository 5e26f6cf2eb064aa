package api

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EResumingSubscriberGetsEveryByteOnce follows a program over connections that are cut 300
// times, while it prints and afterwards.
func TestE2EResumingSubscriberGetsEveryByteOnce(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	id := b.Start(t, object{"runnerId": runner, "shell": `i=0; while [ $i -lt 40 ]; do seq $((1000000+i*8000)) $((1007999+i*8000)); echo err $i >&2; sleep 0.1; i=$((i+1)); done`})

	whole := 0
	watched := make(chan error, 1)
	go func() {
		watched <- b.Follow(t.Context(), id, nil, func(e client.Event) error { whole += len(e.Base64); return nil })
	}()

	// Some connections end within one event, most after a few.
	proxy := bed.NewCutter(t, strings.TrimPrefix(b.Address, "http://"), 60_000)
	cutting := bed.Bed{Client: client.New("http://" + proxy.Listener.Addr().String())}
	live, cuts := resume(t, cutting, id)
	if err := wait.Receive(t, watched, "the watcher's end"); err != nil {
		t.Fatal(err)
	}
	// Again after the end; and over one connection that isn't cut.
	late, more := resume(t, cutting, id)
	var one [2][]byte
	if err := b.Follow(t.Context(), id, nil, func(e client.Event) error {
		one[index(e)] = append(one[index(e)], e.Base64...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if cuts < 50 || cuts+more < 300 {
		t.Errorf("%d cuts while it ran and %d after, want 300 or more", cuts, more)
	}
	for i := range one {
		for when, got := range map[string]string{"while it ran": live[i], "after it": late[i]} {
			if sha256.Sum256([]byte(got)) != sha256.Sum256(one[i]) {
				t.Errorf("stream %d, %s: %d bytes over cut connections, %d over one", i, when, len(got), len(one[i]))
			}
		}
	}
	if whole != len(one[0])+len(one[1]) {
		t.Errorf("%d bytes to the watcher of the whole run, %d afterwards", whole, len(one[0])+len(one[1]))
	}
}

// TestE2EStalledSubscriberTakesNoMemory runs a program that prints 1 GiB, while its only subscriber
// reads ten bytes. The server's memory doesn't grow.
func TestE2EStalledSubscriberTakesNoMemory(t *testing.T) {
	need.Machine(t)
	p := bed.ServeBinary(t, bed.DataDir(t))
	p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "flood", "poolSize": 1, "outputLimit": 2 << 30, "defaultTimeLimit": 600}}, nil)
	runner := p.ClaimUnreleased(t, "flood")
	// First a small program: the cost of any subscription isn't the cost of a flood.
	small := p.Start(t, object{"runnerId": runner, "shell": "head -c 1M /dev/zero"})
	if err := p.Follow(t.Context(), small, nil, func(client.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	forgetPeak(t, p.Cmd.Process.Pid)
	before := peak(t, p.Cmd.Process.Pid)

	id := p.Start(t, object{"runnerId": runner, "shell": "head -c 1G /dev/zero"})
	conn := p.StalledSubscriber(t, id)
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 10)); err != nil { // and no more
		t.Fatal(err)
	}
	var out struct{ Execution struct{ Outcome string } }
	p.Call(t, `query($id: ID!) { execution(id: $id, waitFor: 600) { outcome } }`, object{"id": id}, &out)
	if out.Execution.Outcome != "EXITED" {
		t.Errorf("it ended as %q, want \"EXITED\"", out.Execution.Outcome)
	}
	most := peak(t, p.Cmd.Process.Pid)
	t.Logf("the server had %d KiB before and %d KiB at most", before>>10, most>>10)
	if grown := most - before; grown >= 16<<20 {
		t.Errorf("the server's memory grew by %d KiB", grown>>10)
	}
	p.End(t, 15, false)
	p.WantNothingLeft(t)
}
