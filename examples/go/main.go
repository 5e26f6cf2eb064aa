// Command go runs a Python program on Rockpool with the functions that genqlient
// generates, and follows it. It reconnects when the connection breaks:
//
//	printf 'Ada\nGrace\n' | go run . ../hello.py
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/Khan/genqlient/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

//go:generate go tool genqlient

func main() {
	os.Exit(run(context.Background(), cmp.Or(os.Getenv("ROCKPOOL_SERVER"), "http://127.0.0.1:8080")+"/graphql", os.Args[1]))
}

func run(ctx context.Context, url, program string) (code int) {
	client := graphql.NewClient(url, http.DefaultClient)
	runner := must(Claim(ctx, client, "python")).ClaimRunner.Runner.Id
	defer func() { must(Release(ctx, client, runner)) }()
	must(Write(ctx, client, runner, "main.py", must(os.ReadFile(program))))
	execution := must(Start(ctx, client, runner, []string{"python3", "main.py"})).StartExecution.Execution.Id

	var refused *gqlerror.Error
	_, err := Feed(ctx, client, execution, must(io.ReadAll(os.Stdin)))
	if !errors.As(err, &refused) || refused.Extensions["code"] != "CONFLICT" { // the program may end without reading its input
		must(0, err)
	}
	ended := must(follow(ctx, url, execution, func(output *FollowExecutionEventsExecutionOutput) {
		stream := map[OutputStream]io.Writer{OutputStreamStdout: os.Stdout, OutputStreamStderr: os.Stderr}[output.Stream]
		must(stream.Write(output.Base64))
	})).Execution
	if code = 1; ended.ExitCode != nil {
		code = *ended.ExitCode
	}
	fmt.Fprintf(os.Stderr, "%s, exit code %d\n", *ended.Outcome, code)
	return code
}

// must panics on an error, so that deferred calls release the runner.
func must[T any](value T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return value
}
