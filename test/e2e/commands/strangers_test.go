package commands

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EAStrangersOutputIsData: on an operator's terminal, another program's output can't set the
// clipboard, clear the screen or turn text around. Elsewhere it is exact.
func TestE2EAStrangersOutputIsData(t *testing.T) {
	b := bed.Open(t)
	id := "stranger-" + uuid.NewString()
	b.Put(t, object{"id": id, "poolSize": 1})
	const printed, shown = "\x1b]52;c;aGk=\a\x1b[2J\u202e\x1b[31mred\x1b[0m", `\x1b]52;c;aGk=\x07\x1b[2J\u202e` + "\x1b[31mred\x1b[0m"
	runner := b.Claim(t, id)
	x := b.Start(t, object{"runnerId": runner, "shell": `printf 'one\rtwo\r\n'; printf '\033]52;c;aGk=\007\033[2J\342\200\256\033[31mred\033[0m'; until test -e go; do sleep 0.05; done; printf '\033]0;title\007' >&2`})
	wait.For(t, "stdout is kept before stderr begins", func() bool { out, _, _ := b.Command(t, "", "exec", "logs", x); return strings.Contains(out, printed) })
	b.Shell(t, runner, "touch go")
	b.Await(t, x)
	for _, command := range []string{"logs", "follow"} {
		s := onScreen(t, nil, bed.Rockpool(t), "exec", command, "--server", b.Address, x)
		before := s.sees(t, shown)
		s.sees(t, `\x1b]0;title\x07`)
		s.ends(t, 0)
		if command == "logs" && before != "two\r\n" {
			t.Errorf("%q, want the last state of an overwritten line", before)
		}
		s = onScreen(t, nil, bed.Rockpool(t), "exec", command, "--server", b.Address, "--raw", x)
		s.sees(t, printed)
		s.ends(t, 0)
		if out, _, code := b.Command(t, "", "exec", command, x); code != 0 || !strings.Contains(out, printed) || !strings.HasPrefix(out, "one\rtwo") {
			t.Errorf("in a pipe: %d %q", code, out)
		}
	}
	b.Shell(t, runner, `printf '\033]52;c;aGk=\007' >bad`)
	s := onScreen(t, nil, bed.Rockpool(t), "runner", "cp", "--server", b.Address, runner+":bad", "-")
	s.sees(t, `\x1b]52;c;aGk=\x07`)
	s.ends(t, 0)
	b.Release(t, runner)
}

// TestE2ETextIsWholeCharacters prints characters byte by byte, with the other stream in between, and reads
// them in pages of one chunk.
func TestE2ETextIsWholeCharacters(t *testing.T) {
	b := bed.Open(t)
	id := "characters-" + uuid.NewString()
	b.Put(t, object{"id": id, "poolSize": 1})
	runner := b.Claim(t, id)
	x := b.Start(t, object{"runnerId": runner, "shell": `for b in 303 251 342 202 254 360 237 230 200 342; do printf "\\$b"; sleep 0.02; printf . >&2; sleep 0.02; done`})
	b.Await(t, x)
	texts, exact, after := map[string]string{}, map[string][]byte{}, any(nil)
	for ended := false; !ended; {
		var out struct {
			Execution struct {
				Output struct {
					Cursor string
					End    bool
					Chunks []struct {
						Stream, Text string
						Base64       []byte
					}
				}
			}
		}
		b.Call(t, `query($id: ID!, $after: Cursor) { execution(id: $id) { output(after: $after, maxBytes: 1) { cursor end chunks { stream text base64 } } } }`, object{"id": x, "after": after}, &out)
		for _, c := range out.Execution.Output.Chunks {
			texts[c.Stream] += c.Text
			exact[c.Stream] = append(exact[c.Stream], c.Base64...)
		}
		after, ended = out.Execution.Output.Cursor, out.Execution.Output.End
	}
	if texts["STDOUT"] != "é€😀\ufffd" || texts["STDERR"] != ".........." || !bytes.Equal(exact["STDOUT"], []byte("é€😀\xe2")) {
		t.Errorf("%q, %q", texts, exact)
	}
	b.Release(t, runner)
}

func TestE2EVariablesAndHintsOfARun(t *testing.T) {
	b := bed.Open(t)
	if out, errs, _ := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--variable", "A=x=y", "--variable", "EMPTY=", "--", "sh", "-c", `echo "$A-$EMPTY-$PYTHONUNBUFFERED"`); out != "x=y--1\n" {
		t.Errorf("%q %s", out, errs)
	}
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--variable", "A", "--", "true"); code != 2 || !strings.Contains(errs, `--variable is "A", but must be NAME=VALUE`) {
		t.Errorf("%d %s", code, errs)
	}
	s := onScreen(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--time-limit", "1s", "--", "sleep", "60")
	s.sees(t, "rockpool: hint: it printed nothing, but its output may have been buffered")
	s.ends(t, 124)
	s = onScreen(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--time-limit", "1s", "--", "sh", "-c", "echo x; sleep 60")
	s.ends(t, 124)
	if strings.Contains(s.seen, "hint") {
		t.Error(s.seen)
	}
	// Recipes flush each line, so what a program printed before it reached a limit arrives.
	for file, program := range map[string]string{"said.py": "print('said')\nwhile True: pass\n", "said.pl": "print \"said\\n\"; 1 while 1;\n", "said.lua": "print('said') while true do end\n"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			at := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(at, []byte(program), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "shell", "--time-limit", "10s", at); out != "said\n" || code != 124 {
				t.Errorf("%d %q %s", code, out, errs)
			}
		})
	}
}

// TestE2ELongClaimsAreShortCalls claims through a proxy. It fails a call first, and records the others.
func TestE2ELongClaimsAreShortCalls(t *testing.T) {
	b := bed.Open(t)
	id := "patient-" + uuid.NewString()
	b.Put(t, object{"id": id, "poolSize": 1})
	to, err := url.Parse(b.Address)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }} // it says nothing of itself
	var mu sync.Mutex
	var calls []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		calls = append(calls, string(body))
		first := len(calls) == 1
		mu.Unlock()
		if first {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Host = to.Host
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	claimed := make(chan string, 1)
	go func() {
		out, errs, _ := bed.RunProgram(t, nil, bed.Rockpool(t), "runner", "claim", "--server", proxy.URL, "--wait", "10m", id)
		claimed <- out + errs
	}()
	runner := strings.TrimSpace(wait.Receive(t, claimed, "a runner"))
	mu.Lock()
	defer mu.Unlock()
	// On a busy machine the command also asks for the state of the pool.
	calls = slices.DeleteFunc(calls, func(call string) bool { return !strings.Contains(call, "claimRunner(") })
	if len(calls) < 2 || !strings.Contains(calls[1], `"wait":"TICKET"`) {
		t.Errorf("%q", calls)
	}
	b.Works(t, "runner", "release", strings.Fields(runner)[0])
}
