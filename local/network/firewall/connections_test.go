package firewall

import (
	"testing"
	"time"

	"github.com/google/nftables/expr"

	"github.com/rockpool/rockpool/test/networktest"
)

func testConnections(t *testing.T, _ *world) {
	a := join(t, "a", policy(0))
	const few = 100 // the last ones are sent concurrently
	var all []networktest.Probe
	a.Do(func() {
		for range maxConnections + 40 {
			all = append(all, networktest.Send(t, "udp", "", networktest.Public4, networktest.Port))
			if len(all) <= maxConnections-few {
				all[len(all)-1].Await(t)
			}
		}
	})
	if answered := maxConnections - few + answers(t, all[maxConnections-few:], all[0]); answered > maxConnections+2 { // the kernel counts while other connections end
		t.Errorf("%d concurrent connections were answered, want at most %d", answered, maxConnections)
	}
	names := "10.213.0.1" // the machine answers at this address, too
	networktest.NewServer(t, 53)
	b := join(t, "b", policy(1)) // another runner's connections don't count
	reaches(t, b, networktest.Public4, true)
	unanswered(t, a.Send("udp", names, 53), "a question of the machine, with all its connections,", func() (string, error) {
		return b.Ask("udp", names, 53)
	})
}

func testSharedConnections(t *testing.T, w *world) {
	const few = 10
	networktest.NewServer(t, 53)
	a, b := join(t, "a", policy(0)), join(t, "b", policy(1))
	rules := shared()
	limit := rules.chains[0].rules[0][0].(*expr.Connlimit)
	limit.Count = few
	if err := rules.install(w.conn); err != nil {
		t.Fatal(err)
	}
	ofA, ofB := []networktest.Probe{a.Send("udp", networktest.Public4, networktest.Port)}, []networktest.Probe{b.Send("udp", "10.213.0.1", 53)}
	ofA[0].Await(t)
	ofB[0].Await(t)
	for range few - 1 {
		ofA = append(ofA, a.Send("udp", networktest.Public4, networktest.Port))
		ofB = append(ofB, b.Send("udp", "10.213.0.1", 53))
	}
	answered := 2 + answers(t, ofA[1:], ofA[0]) + answers(t, ofB[1:], ofB[0])
	if answered > few+2 || answered < few/2 { // one more may start concurrently
		t.Errorf("%d concurrent connections were answered, want about %d", answered, few)
	}
	if err := shared().install(w.conn); err != nil {
		t.Fatal(err)
	}
}

func testConnectionsEnd(t *testing.T, w *world) {
	for public, machine := range map[string]string{networktest.Public4: networktest.MachinePublic4, networktest.Public6: networktest.MachinePublic6} {
		outside := listen(t, w.Outside, public, 6000)
		accomplice, c := addressed(public, 6000), join(t, "c", policy(1))
		others := listen(t, c, of(1, public), 5001)
		say(t, others, accomplice, "hello")
		_, toOthers := hear(t, outside)
		a := join(t, "a", policy(0))
		first := listen(t, a, of(0, public), 5000)
		say(t, first, accomplice, "hello")
		_, toFirst := hear(t, outside)
		if want := addressed(machine, 5000); toFirst != want {
			t.Fatalf("it is seen outside as %v, not %v", toFirst, want)
		}
		say(t, outside, toFirst, "for the first")
		if said, _ := hear(t, first); said != "for the first" {
			t.Errorf("the first gets %q, want \"for the first\"", said)
		}
		if err := Remove("a"); err != nil {
			t.Fatal(err)
		}
		b := join(t, "a", policy(0)) // has a's address and port
		second := listen(t, b, of(0, public), 5000)
		say(t, outside, toFirst, "for the first")
		say(t, outside, toOthers, "for the other")
		if said, _ := hear(t, others); said != "for the other" {
			t.Errorf("the other, which continues, gets %q, want \"for the other\"", said)
		}
		for range 4 { // as in unanswered
			reaches(t, b, public, true)
		}
		say(t, second, accomplice, "hello")
		_, toSecond := hear(t, outside)
		say(t, outside, toSecond, "for the second")
		if said, _ := hear(t, second); said != "for the second" {
			t.Errorf("the second gets %q, want \"for the second\"", said)
		}
		for _, id := range []string{"a", "c"} {
			if err := Remove(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testNameConnections(t *testing.T, _ *world) {
	networktest.NewServer(t, 53)
	const tried = 800
	a := join(t, "a", policy(0))
	var all []networktest.Probe
	began := time.Now()
	a.Do(func() {
		for range tried {
			all = append(all, networktest.Send(t, "tcp", "", "10.213.0.1", 53))
		}
	})
	for range 4 { // afterwards it is decided which connections exist
		reaches(t, a, networktest.Public4, true)
	}
	made := count(all)
	most := questions * (2 + int(time.Since(began)/time.Second)) // this burst, and as many per second
	if made < questions || made > most {
		t.Errorf("of %d concurrent connections %d are made, want %d to %d", tried, made, questions, most)
	}
}
