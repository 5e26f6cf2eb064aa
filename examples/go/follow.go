package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/Khan/genqlient/graphql"
)

// follow passes all output to print, each byte once. After a broken connection it resumes after the last event.
// It uses server-sent events, since genqlient's WebSocket fails on pings.
func follow(ctx context.Context, url, execution string, print func(*FollowExecutionEventsExecutionOutput)) (*FollowExecutionEventsExecutionFinished, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for in := (__FollowInput{Execution: execution}); ; time.Sleep(500 * time.Millisecond) {
		response, err := subscribe(ctx, url, in)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			continue
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			var answer graphql.BaseResponse[FollowResponse]
			if !isData || json.Unmarshal(data, &answer) != nil {
				continue // another field, or an incomplete event
			}
			if len(answer.Errors) > 0 && answer.Errors[0].Extensions["retryable"] != true {
				return nil, answer.Errors
			} else if len(answer.Errors) > 0 {
				break
			}
			in.After = new(answer.Data.ExecutionEvents.GetCursor())
			switch event := answer.Data.ExecutionEvents.(type) {
			case *FollowExecutionEventsExecutionOutput:
				print(event)
			case *FollowExecutionEventsExecutionFinished:
				return event, nil
			}
		}
		response.Body.Close()
	}
}

func subscribe(ctx context.Context, url string, in __FollowInput) (*http.Response, error) {
	body, _ := json.Marshal(graphql.Request{Query: Follow_Operation, Variables: in}) // strings can't fail
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	return http.DefaultClient.Do(request)
}
