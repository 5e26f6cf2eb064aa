package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Claim a runner, run a program in it, and release it.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := client.New(exampleServer()) // for example "http://127.0.0.1:8080"
	runner, err := client.Claim(ctx, c, client.ClaimRunnerInput{EnvironmentId: "python", WaitFor: new(30)})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = client.Release(ctx, c, runner) }()
	result, err := client.Run(ctx, c, client.StartExecutionInput{RunnerId: runner, Command: []string{"python3", "-c", "print(6 * 7)"}})
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%s: %s", result.Ending, result.Text())
	// Output: EXITED 0: 42
}

// Write files into a runner before a program uses them.
func ExampleUpdateFiles() {
	c := client.New(exampleServer())
	out, err := client.UpdateFiles(context.Background(), c, client.UpdateFilesInput{RunnerId: "r1", Write: []client.FileInput{
		{Path: "main.py", Text: new("print(6 * 7)")},
		{Path: "data.bin", Base64: []byte{0, 1, 2}, Mode: new("0644")},
	}})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(len(out.UpdateFiles.Failed), "failed")
	// Output: 0 failed
}

// The code of an error says whether to wait, to give up or to change the input.
func ExampleError() {
	c := client.New(exampleServer())
	_, err := client.Claim(context.Background(), c, client.ClaimRunnerInput{EnvironmentId: "cobol"})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Extensions.Code, refused.Extensions.Code == runtime.CodeNoRunnerAvailable, refused.Extensions.Retryable)
	}
	// Output: NO_RUNNER_AVAILABLE true true
}

// Copy a program's output. After a broken connection, Follow continues after the last event: no
// byte is lost or repeated.
func ExampleClient_Follow() {
	ctx, c := context.Background(), client.New("http://127.0.0.1:8080")
	var after *string
	err := client.Persist(ctx, time.Minute, client.Passing, func() error {
		return c.Follow(ctx, "an execution's id", after, func(event client.Event) error {
			after = &event.Cursor
			_, err := os.Stdout.Write(event.Base64)
			return err
		})
	})
	if err != nil {
		log.Panic(err)
	}
}

// Add a policy to a client: this Sender retries operations for a minute while the server is
// unavailable. Use it only for operations that are safe to repeat.
func ExampleClient_Around() {
	c := client.New(exampleServer())
	patient := c.Around(func(ctx context.Context, send func(context.Context) error) error {
		return client.Persist(ctx, time.Minute, client.Passing, func() error { return send(ctx) })
	})
	runner, err := client.Claim(context.Background(), patient, client.ClaimRunnerInput{EnvironmentId: "python", IdempotencyKey: new("job 17")})
	fmt.Println(runner, err)
	// Output: r1 <nil>
}

// exampleServer returns the address of a server with the responses for these examples.
func exampleServer() string {
	answers := []struct{ part, answer string }{
		{`"cobol"`, `{"errors": [{"message": "no runner is idle", "extensions": {"code": "NO_RUNNER_AVAILABLE", "retryable": true}}]}`},
		{"ClaimRunner", `{"data": {"claimRunner": {"runner": {"id": "r1"}}}}`},
		{"StartExecution", `{"data": {"startExecution": {"execution": {"id": "x1"}}}}`},
		{"GetResult", `{"data": {"execution": {"state": "FINISHED", "outcome": "EXITED", "exitCode": 0, "output": {"end": true, "chunks": [{"stream": "STDOUT", "text": "42\n"}]}}}}`},
		{"UpdateFiles", `{"data": {"updateFiles": {"failed": []}}}`},
		{"ReleaseRunner", `{"data": {"releaseRunner": {"released": true}}}`},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body strings.Builder
		_ = r.Write(&body)
		for _, a := range answers {
			if strings.Contains(body.String(), a.part) {
				_, _ = fmt.Fprint(w, a.answer)
				return
			}
		}
	}))
	return server.URL
}
