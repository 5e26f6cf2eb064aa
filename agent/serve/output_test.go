package serve_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/agent"
)

func TestIncompleteCharacterWaitsForItsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, commands{"split": func(p *fakeProcess) {
			for _, part := range []string{"a\xf0", "\x9f", "\x8e\x89b", "\xe2\x82"} {
				_, _ = io.WriteString(p.stdout, part)
				time.Sleep(5 * time.Millisecond)
			}
			_, _ = io.WriteString(p.stderr, "err")
			time.Sleep(50 * time.Millisecond) // too late
			_, _ = io.WriteString(p.stdout, "\xac")
			_, _ = io.WriteString(p.stdout, "\xc3")
		}})
		s := f.start(agent.Start{Argv: []string{"split"}})
		_, events, _ := f.follow(s, true)
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprintf("%d %q %v", e.Stream, e.Data, e.Time))
		}
		want := `1 "a" 0s,1 "🎉b" 10ms,2 "err" 20ms,1 "\xe2\x82" 35ms,1 "\xac" 70ms,1 "\xc3" 70ms`
		if strings.Join(got, ",") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, ","), want)
		}
		_ = s.Close()
		f.server.Close()
	})
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a🎉é\xff\xc3"), uint64(0b1011))
	f.Fuzz(func(t *testing.T, text []byte, cuts uint64) {
		synctest.Test(t, func(t *testing.T) { printInParts(t, text, cuts) })
	})
}

// printInParts prints the parts of a text immediately after each other, by the fake clock.
func printInParts(t *testing.T, text []byte, cuts uint64) {
	fx := newFixture(t, commands{"print": func(p *fakeProcess) {
		from := 0
		for i := range text {
			if cuts>>(i%64)&1 == 1 {
				_, _ = p.stdout.Write(text[from:i])
				from = i
			}
		}
		_, _ = p.stdout.Write(text[from:])
	}})
	defer fx.server.Close()
	output, events, _ := fx.follow(fx.start(agent.Start{Argv: []string{"print"}}), true)
	if output != string(text) {
		t.Fatalf("%q became %q", text, output)
	}
	for _, e := range events {
		if utf8.Valid(text) && !utf8.Valid(e.Data) {
			t.Errorf("a split character: %q", e.Data)
		}
	}
}

// The program prints more than fits into a frame. All of it arrives at the same time by the fake
// clock, so no character is split by a timeout.
func TestFloodsKeepCharactersWhole(t *testing.T) {
	for skip := range utf8.UTFMax {
		synctest.Test(t, func(t *testing.T) { flood(t, skip) })
	}
}

func flood(t *testing.T, skip int) {
	text := strings.Repeat("x", skip) + strings.Repeat("漢", 60_000)
	f := newFixture(t, commands{"flood": func(p *fakeProcess) { _, _ = p.stdout.Write([]byte(text)) }})
	defer f.server.Close()
	output, events, _ := f.follow(f.start(agent.Start{Argv: []string{"flood"}}), true)
	if output != text {
		t.Errorf("%d of %d bytes, after %d others", len(output), len(text), skip)
	}
	for _, e := range events {
		if !utf8.Valid(e.Data) {
			t.Errorf("a split character in %d bytes at %d, after %d others", len(e.Data), e.Offset, skip)
		}
	}
}
