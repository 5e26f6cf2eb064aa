package plain

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// FuzzSplitter has a hostile program, whose output is full of what scripts tell,
// but for the secret, and comes in whatever pieces.
func FuzzSplitter(f *testing.F) {
	const secret = "0123456789abcdef"
	f.Add([]byte("hello"), []byte("\x1e"+secret), uint8(3))
	f.Add([]byte("\x1e"+secret+"x"), []byte("\x1e\x1e"+secret+"\x1e"), uint8(1))
	f.Add([]byte("\x1e"), []byte{}, uint8(7))
	f.Fuzz(func(t *testing.T, before, after []byte, size uint8) {
		prefix := []byte("\x1e" + secret + " ")
		if bytes.Contains(before, prefix) || bytes.Contains(after, prefix) {
			return // only the script knows the secret
		}
		var printed bytes.Buffer
		var told []string
		s := newSplitter(secret, false, &printed, func(words []string) {
			told = append(told, fmt.Sprint(printed.Len(), words))
		})
		whole := append(append(append([]byte(nil), before...), "\x1e"+secret+" started 12 34\x1e"...), after...)
		whole = append(whole, "\x1e"+secret+" ended 3\x1e"...)
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), int(size)%61+1)
			if m, err := s.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		want := append(append([]byte(nil), before...), after...)
		if !bytes.Equal(printed.Bytes(), want) {
			t.Errorf("printed %q, want %q", printed.Bytes(), want)
		}
		if got, want := fmt.Sprint(told), fmt.Sprintf("[%d [started 12 34] %d [ended 3]]", len(before), len(want)); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	})
}

// TestForgedMarks has a program that knows the secret, which breaks nothing but
// its own output.
func TestForgedMarks(t *testing.T) {
	const secret = "s"
	for _, hostile := range []string{
		"\x1es " + strings.Repeat("x", 10_000), "\x1es \x1e", "\x1es ended\x1e", "\x1es ended -1\x1e", "\x1es ended 99999999999999999999\x1e",
		"\x1es started\x1e", "\x1es refused a b c\x1e", "\x1es \x1es \x1es ",
	} {
		var printed bytes.Buffer
		p := newProcess(&Runner{config: Config{Report: func(error) {}}}, agent.Start{})
		p.script = &script{secret: secret, input: newInput(nil), done: make(chan struct{}), cancel: func(error) {}}
		go func() { _, _ = printed.ReadFrom(p.stdout) }()
		s := newSplitter(secret, false, counted{p, p.out}, func(words []string) { p.heard(p.script, 1, words) })
		for i := range hostile {
			if _, err := s.Write([]byte(hostile[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.held) > mostTold+len(s.prefix)+1 {
			t.Errorf("%.20q: %d bytes are held back", hostile, len(s.held))
		}
		p.finish(serve.Status{Lost: true})
	}
}

// TestValues has shells read every byte that a value can have.
func TestValues(t *testing.T) {
	for _, shell := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		for range 5 {
			value := make([]byte, rand.IntN(5000))
			for i := range value {
				value[i] = byte(1 + rand.IntN(255))
			}
			all := []string{string(value), "", "\n\n", "_", strings.Repeat("\xff", mostInLine), "+x\n.y"}
			for _, value := range all {
				cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], "-c", shorten(commonScript)+`next; printf %s "$value"`)...)
				told := append(values("secret"), values(value)...)
				for line := range bytes.Lines(told) {
					if len(line) > mostInLine+10 || bytes.ContainsFunc(line[:len(line)-1], func(r rune) bool { return r < ' ' || r > '~' }) {
						t.Fatalf("a terminal would change %q", line)
					}
				}
				cmd.Stdin = bytes.NewReader(told)
				if got, err := cmd.Output(); err != nil || string(got) != value {
					t.Fatalf("%s read %q, %v, want %q", shell[0], got, err, value)
				}
			}
		}
	}
}
