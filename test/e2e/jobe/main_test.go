package jobe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { bed.Main(m) }

type object = map[string]any

// A moodle is a client of the API, like CodeRunner.
type moodle struct {
	bed.Bed
	key     string        // "" means none
	timeout time.Duration // of a request; 0 means wait.Limit
}

// serve returns a client of a server with the API and these environments.
func serve(t *testing.T, change func(*config.Config), environments ...object) moodle {
	t.Helper()
	data := bed.DataDir(t)
	settings := bed.Settings(data, bed.CgroupsOf(data))
	settings.Compat = []string{config.CompatJobe}
	if change != nil {
		change(&settings)
	}
	b, _ := bed.ServeHere(t, settings)
	for _, environment := range environments {
		b.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": environment}, nil)
	}
	return moodle{Bed: b}
}

// do is send, which must succeed.
func (m moodle) do(t testing.TB, method, path string, body io.Reader) (int, []byte) {
	t.Helper()
	status, text, err := m.send(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

// send sends a request and returns the answer's status and body.
func (m moodle) send(ctx context.Context, method, path string, body io.Reader) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, m.Address+"/jobe/index.php/restapi/"+path, body)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if m.key != "" {
		r.Header.Set("X-API-KEY", m.key)
	}
	client := http.Client{Timeout: cmp.Or(m.timeout, wait.Limit)}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, bytes.TrimSuffix(text, []byte("\n")), err
}

// A result is the answer to a run.
type result struct {
	ID      string `json:"run_id"`
	Outcome int    `json:"outcome"`
	CmpInfo string `json:"cmpinfo"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Hint    string `json:"hint"` // not in Jobe
}

// try runs a program and returns any answer.
func (m moodle) try(t testing.TB, spec object) (int, []byte) {
	t.Helper()
	text, err := json.Marshal(object{"run_spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return m.do(t, http.MethodPost, "runs", bytes.NewReader(text))
}

// run runs a program. The answer must have an outcome.
func (m moodle) run(t testing.TB, spec object) (got result) {
	t.Helper()
	status, body := m.try(t, spec)
	got, err := resultOf(status, body)
	if err != nil {
		t.Fatalf("%v: %v", spec, err)
	}
	return got
}

// resultOf returns the result in an answer.
func resultOf(status int, body []byte) (got result, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(&got); status != http.StatusOK || err != nil {
		return got, fmt.Errorf("%d %s: %w", status, body, err)
	}
	return got, nil
}

// put uploads a file, which must succeed.
func (m moodle) put(t testing.TB, id string, content []byte) {
	t.Helper()
	text, err := json.Marshal(object{"file_contents": content}) // base64
	if err != nil {
		t.Fatal(err)
	}
	if status, body := m.do(t, http.MethodPut, "files/"+id, bytes.NewReader(text)); status != http.StatusNoContent || len(body) > 0 {
		t.Fatalf("put %s: %d %s", id, status, body)
	}
}

// want fails the test unless a request has this answer.
func (m moodle) want(t testing.TB, method, path, body string, status int, text string) {
	t.Helper()
	if got, answer := m.do(t, method, path, bytes.NewReader([]byte(body))); got != status || string(answer) != text {
		t.Errorf("%s %s %.80s: %d %s, want %d %s", method, path, body, got, answer, status, text)
	}
}
