package jobe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

const hello = `{"run_spec": {"language_id": "python3", "sourcecode": "print(1)"%s}}`

// TestE2EJobeRequests: bad requests get the original's answers and change nothing.
func TestE2EJobeRequests(t *testing.T) {
	m := serve(t, func(c *config.Config) { c.MaxBody = 1 << 20 }, python)
	wait.For(t, "the languages are known", func() bool {
		status, body := m.do(t, http.MethodGet, "languages/", nil)
		var languages [][]string
		if err := json.Unmarshal(body, &languages); status != http.StatusOK || err != nil || len(languages) != 1 || languages[0][0] != "python3" {
			t.Fatalf("%d %s", status, body)
		}
		return strings.HasPrefix(languages[0][1], "3.")
	})
	for body, why := range map[string]string{
		``:                           "Non-JSON post data received",
		`{"run_spec": {"sourcecode"`: "Non-JSON post data received",
		`{}`:                         "No run_spec attribute found in post data",
		`{"run_spec": {"language_id": "python3"}}`:                                              "run_spec is missing the required attribute 'sourcecode'",
		`{"run_spec": {"sourcecode": "x"}}`:                                                     "run_spec is missing the required attribute 'language_id'",
		`{"run_spec": {"language_id": "cobol", "sourcecode": "x"}}`:                             "Language 'cobol' is not known",
		`{"run_spec": {"language_id": "c", "sourcecode": "x"}}`:                                 "Language 'c' is not known", // it has no environment
		fmt.Sprintf(hello, `, "sourcefilename": "../x.py"`):                                     "The sourcefilename for the run_spec is illegal",
		fmt.Sprintf(hello, `, "sourcefilename": ".profile"`):                                    "The sourcefilename for the run_spec is illegal",
		fmt.Sprintf(hello, `, "parameters": {"cputime": 1000}`):                                 "cputime exceeds maximum allowed on this Jobe server (120 secs)",
		fmt.Sprintf(hello, `, "file_list": [["12345678", "../../etc/x"]]`):                      `Invalid file specifier: [\"12345678\", \"../../etc/x\"]`,
		fmt.Sprintf(hello, `, "parameters": {"runargs": ["`+strings.Repeat("x", 200_000)+`"]}`): "interpreterargs, runargs: ",
	} {
		if strings.HasSuffix(why, ": ") {
			if status, answer := m.do(t, http.MethodPost, "runs", strings.NewReader(body)); status != http.StatusBadRequest || !strings.HasPrefix(string(answer), `"`+why) {
				t.Errorf("%.80s: %d %s", body, status, answer)
			}
			continue
		}
		m.want(t, http.MethodPost, "runs", body, http.StatusBadRequest, `"`+why+`"`)
	}
	m.want(t, http.MethodPost, "runs", `{"run_spec": "`+strings.Repeat("x", 1<<20)+`"}`, http.StatusRequestEntityTooLarge, `"the body must be at most 1048576 bytes"`)
	for path, status := range map[string]int{"": 404, "nothing": 404, "files/": 404, "files/a/b": 404, "files/..%2f..%2fetc": 404} {
		if got, body := m.do(t, http.MethodPut, path, strings.NewReader(`{"file_contents": "eA=="}`)); got != status {
			t.Errorf("PUT %s: %d %s, want %d", path, got, body, status)
		}
	}
	if got := m.run(t, object{"language_id": "python3", "sourcecode": "print(1)"}); got.Outcome != 15 {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestE2EJobeFiles: files are kept for later runs, by tenant. Only tokens that may run programs may
// upload them.
func TestE2EJobeFiles(t *testing.T) {
	first := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(first, []byte("correct-horse-battery"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := serve(t, func(c *config.Config) { c.TokenFile = first }, object{"id": "python", "shared": true})
	m.want(t, http.MethodGet, "languages", "", http.StatusForbidden, `"Missing API key"`)
	m.key = "wrong"
	m.want(t, http.MethodPost, "runs", fmt.Sprintf(hello, ""), http.StatusForbidden, `"Unknown API key"`)

	m.key = m.token(t, "", client.RoleObserver)
	for method, path := range map[string]string{http.MethodPost: "runs", http.MethodPut: "files/12345678", http.MethodGet: "languages"} {
		if status, body := m.do(t, method, path, strings.NewReader(fmt.Sprintf(hello, ""))); status != http.StatusForbidden || !bytes.Contains(body, []byte("CLIENT")) {
			t.Errorf("an observer: %s %s: %d %s", method, path, status, body)
		}
	}

	one, two := m, m
	one.key, two.key = m.token(t, "one", client.RoleClient), m.token(t, "two", client.RoleClient)
	content := []byte("a\x00\xff")
	spec := object{"language_id": "python3", "sourcecode": "print(open('data.bin', 'rb').read(), open('two').read())", "file_list": [][]string{{"0123456789abcdef", "data.bin"}, {"abcdefgh", "two"}}}
	missing := `"One or more of the specified files is missing/unavailable"`
	one.put(t, "0123456789abcdef", content)
	if status, body := one.try(t, spec); status != http.StatusNotFound || string(body) != missing {
		t.Errorf("one of two files: %d %s", status, body)
	}
	one.put(t, "abcdefgh", []byte("old"))
	one.put(t, "abcdefgh", []byte("new"))
	for range 2 { // the file outlives runs
		if got := one.run(t, spec); got.Outcome != 15 || got.Stdout != "b'a\\x00\\xff' new\n" {
			t.Errorf("%+v", got)
		}
	}
	one.put(t, "othersource", []byte("print('the file')"))
	if got := one.run(t, object{"language_id": "python3", "sourcecode": "print('the source')", "file_list": [][]string{{"othersource", "prog.py"}}}); got.Stdout != "the file\n" {
		t.Errorf("a file with the source's name: %+v", got)
	}
	one.want(t, http.MethodHead, "files/abcdefgh", "", http.StatusNoContent, "")
	one.want(t, http.MethodHead, "files/ABCDEFGH", "", http.StatusNotFound, "")
	two.want(t, http.MethodHead, "files/abcdefgh", "", http.StatusNotFound, "")
	if status, body := two.try(t, spec); status != http.StatusNotFound || string(body) != missing {
		t.Errorf("another tenant: %d %s", status, body)
	}
	one.want(t, http.MethodPut, "files/abcdefgh", `{"file_contents": "$"}`, http.StatusBadRequest, `"put: contents of file abcdefgh are not valid base-64"`)
	one.want(t, http.MethodPut, "files/abcdefgh", `{}`, http.StatusBadRequest, `"put: missing file_contents parameter"`)
	one.want(t, http.MethodHead, "files/abcdefgh", "", http.StatusNoContent, "") // unchanged
}

// token makes a tenant's token; "" is a token for all tenants.
func (m moodle) token(t *testing.T, tenant string, role client.Role) string {
	t.Helper()
	admin := bed.Bed{Client: m.Client.WithToken("correct-horse-battery")}
	in := object{"name": "moodle", "role": role}
	if tenant != "" {
		admin.Call(t, `mutation($id: ID!) { putTenant(input: {id: $id}) { created } }`, object{"id": tenant}, nil)
		in["tenant"] = tenant
	}
	var made struct{ CreateToken struct{ Secret string } }
	admin.Call(t, `mutation($in: CreateTokenInput!) { createToken(input: $in) { secret } }`, object{"in": in}, &made)
	return made.CreateToken.Secret
}

// TestE2EJobeOverload: a run that doesn't fit gets outcome 21, never an HTTP error.
func TestE2EJobeOverload(t *testing.T) {
	m := serve(t, nil, python)
	run := func() int { return m.run(t, object{"language_id": "python3", "sourcecode": "print(1)"}).Outcome }
	outcomes := []int{run()}
	m.Call(t, `mutation { putTenant(input: {id: "default", quotas: {claimsPerMinute: 0}}) { created } }`, nil, nil)
	if outcomes = append(outcomes, run(), run()); !slices.Equal(outcomes, []int{15, 21, 21}) {
		t.Errorf("before and with a quota of none: %v", outcomes)
	}
}

// TestE2EJobeSlowBodies: clients that never send the rest of their bodies don't stop others from
// running programs.
func TestE2EJobeSlowBodies(t *testing.T) {
	const size = 1 << 20
	m := serve(t, func(c *config.Config) { c.MaxBody = size }, python)
	for range 5 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.Address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(wait.Limit))
		_, _ = fmt.Fprintf(conn, "POST /jobe/index.php/restapi/runs HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", conn.RemoteAddr(), size)
		line, err := bufio.NewReader(conn).ReadString('\n') // the server begins to read the body
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if got := m.run(t, object{"language_id": "python3", "sourcecode": "print(1)"}); got.Outcome != 15 {
		t.Errorf("%+v", got)
	}
}

// TestE2EJobeLargeAnswers: an answer's memory is charged to its caller. If there is none left, the
// answer is an overload, and nothing else suffers.
func TestE2EJobeLargeAnswers(t *testing.T) {
	m := serve(t, func(s *config.Config) { s.MaxBody, s.Bounds.BodyMemory = 1<<20, 40<<20 }, object{"id": "python", "outputLimit": 64 << 20, "resources": object{"memoryMiB": 96}})
	for _, test := range []struct{ megabytes, outcome int }{{1, 15}, {10, 21}, {1, 15}} { // five times as much in JSON
		source := fmt.Sprintf("import sys\nfor _ in range(%d): sys.stdout.buffer.write(b'\\xff' * 1000000)", test.megabytes)
		if got := m.run(t, object{"language_id": "python3", "sourcecode": source, "parameters": object{"streamsize": 1000, "cputime": 100}}); got.Outcome != test.outcome {
			t.Errorf("%d MB: outcome %d, %.80q", test.megabytes, got.Outcome, got.Stderr)
		}
	}
	got := m.run(t, object{"language_id": "python3", "sourcecode": "while True: print('x' * 1000)", "parameters": object{"streamsize": 1000, "cputime": 100}})
	if got.Outcome != 13 || len(got.Stdout) != 16<<20 {
		t.Errorf("endless output: outcome %d, %d bytes", got.Outcome, len(got.Stdout))
	}
}

// TestE2EJobeOperatorsRecipe: a language runs as its operator's recipe says, not as the original
// runs it.
func TestE2EJobeOperatorsRecipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "languages.yaml")
	recipe := "languages:\n  - id: c\n    build: [sh, -c, 'cp \"$0\" \"$1\"', '{file}', '{program}']\n    run: [sh, '{program}', '{args}']\n" +
		"  - {id: quiet, fileName: a.quiet, run: [cat, '{file}'], version: ['true'], versionPattern: '(x)', environments: [c]}\n" +
		"  - {id: absent, fileName: a.absent, run: [cat, '{file}'], version: [/nonexistent], versionPattern: '(x)', environments: [c]}\n"
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	m := serve(t, func(s *config.Config) { s.Languages = file }, c)
	if got := m.run(t, object{"language_id": "c", "sourcecode": "echo by the recipe"}); got.Outcome != 15 || got.Stdout != "by the recipe\n" {
		t.Errorf("%+v", got)
	}
	wait.For(t, "a language that its environment lacks isn't listed, and one without a version is", func() bool {
		_, body := m.do(t, http.MethodGet, "languages", nil)
		return strings.Contains(string(body), `["quiet","Unknown"]`) && !strings.Contains(string(body), "absent")
	})
}

// TestE2EJobeBurst: of 200 concurrent runs none is lost, and each gets its own answer.
func TestE2EJobeBurst(t *testing.T) {
	m := serve(t, nil, object{"id": "python", "poolSize": 4, "resources": object{"memoryMiB": 96}})
	m.timeout = 10 * time.Minute // most of them wait
	const runs = 200
	var ended, overloaded atomic.Int32
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			defer ended.Add(1)
			spec := fmt.Sprintf(`{"run_spec": {"language_id": "python3", "sourcecode": "print(input())", "input": "%d", "parameters": {"cputime": 100}}}`, i)
			for { // a busy machine may be too slow for some: they are refused, not lost
				before := ended.Load()
				status, body, err := m.send(t.Context(), http.MethodPost, "runs", strings.NewReader(spec))
				if err != nil {
					t.Errorf("run %d: %v", i, err)
					return
				}
				got, err := resultOf(status, body)
				if got.Outcome == 21 && ended.Load() > before {
					overloaded.Add(1)
					continue
				}
				if err != nil || got.Outcome != 15 || got.Stdout != fmt.Sprintln(i) {
					t.Errorf("run %d: %+v, %v, while %d others ended", i, got, err, ended.Load()-before)
				}
				return
			}
		})
	}
	all.Wait()
	t.Logf("%d runs, of which %d were refused once or more", runs, overloaded.Load())
	var counted struct{ Batches struct{ TotalCount int } }
	m.Call(t, `{ batches { totalCount } }`, nil, &counted)
	if counted.Batches.TotalCount != runs {
		t.Errorf("%d batches ran for %d runs", counted.Batches.TotalCount, runs)
	}
}

// TestE2EJobeRunEndsWhenItsClientLeaves, and its runner is removed.
func TestE2EJobeRunEndsWhenItsClientLeaves(t *testing.T) {
	m := serve(t, nil, python)
	ctx, leave := context.WithCancel(t.Context())
	body := strings.NewReader(`{"run_spec": {"language_id": "python3", "sourcecode": "import time\nprint(1, flush=True)\ntime.sleep(3600)", "parameters": {"cputime": 120}}}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Address+"/jobe/index.php/restapi/runs", body)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(r)
		left <- err
	}()
	var seen struct {
		Batches struct {
			Nodes []struct {
				State   runtime.BatchState
				Outcome runtime.BatchOutcome
				Cases   struct {
					Nodes []struct {
						Execution *struct{ State runtime.ExecutionState }
					}
				}
			}
		}
	}
	batches := func() {
		m.Call(t, `{ batches { nodes { state outcome cases { nodes { execution { state } } } } } }`, nil, &seen)
	}
	wait.For(t, "the program runs", func() bool {
		batches()
		return len(seen.Batches.Nodes) == 1 && len(seen.Batches.Nodes[0].Cases.Nodes) == 1 && seen.Batches.Nodes[0].Cases.Nodes[0].Execution != nil &&
			seen.Batches.Nodes[0].Cases.Nodes[0].Execution.State == runtime.ExecutionRunning
	})
	leave()
	if err := wait.Receive(t, left, "the request's end"); err == nil {
		t.Error("the request was answered")
	}
	wait.For(t, "the batch is cancelled", func() bool {
		batches()
		return seen.Batches.Nodes[0].State == runtime.BatchFinished
	})
	if seen.Batches.Nodes[0].Outcome != runtime.BatchCancelled {
		t.Errorf("it ended with %s, want %s", seen.Batches.Nodes[0].Outcome, runtime.BatchCancelled)
	}
}

// TestE2EJobeIsCounted: metrics have the requests by route, and the audit log names the API.
func TestE2EJobeIsCounted(t *testing.T) {
	m := serve(t, nil, python)
	m.run(t, object{"language_id": "python3", "sourcecode": "print(1)"})
	m.want(t, http.MethodHead, "files/12345678", "", http.StatusNotFound, "")
	answer, err := http.Get(m.Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`api="jobe"`, `restapi/runs"`, `restapi/files/{id}"`} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the metrics have no %s", part)
		}
	}
	if entries := m.Works(t, "audit", "--action", "run", "--json"); !strings.Contains(entries, `"jobe"`) {
		t.Errorf("the audit log has %s", entries)
	}
}

// TestE2EJobeExample runs the example of the documentation.
func TestE2EJobeExample(t *testing.T) {
	m := serve(t, nil, python)
	t.Setenv("ROCKPOOL_SERVER", m.Address)
	for range 2 { // without its file, and with it
		out, errs, code := bed.RunProgram(t, strings.NewReader("Ada\n"), bed.Source(t, "examples/jobe/run.sh"))
		if code != 0 || errs != "" || out != "outcome 15\nGood morning, Ada\n\n" {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
	}
}
