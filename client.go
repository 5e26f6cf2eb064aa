package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A client asks one server's API.
type client struct {
	url  string // of the API itself
	http *http.Client
}

func newClient(server string) *client {
	return &client{url: strings.TrimSuffix(server, "/") + "/graphql", http: &http.Client{}}
}

// An apiError is the first error of an answer.
type apiError struct {
	Message    string
	Extensions struct {
		Code      runtime.Code
		Field     string
		Retryable bool
	}
}

func (e *apiError) Error() string {
	text := e.Message
	if e.Extensions.Field != "" {
		text = e.Extensions.Field + ": " + text
	}
	if e.Extensions.Code != "" {
		text += fmt.Sprintf(" (%s)", e.Extensions.Code)
	}
	return text
}

type answer struct {
	Data   json.RawMessage
	Errors []*apiError
}

// into decodes an answer's data, or returns its error.
func (a answer) into(value any) error {
	if len(a.Errors) > 0 {
		return a.Errors[0]
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(a.Data, value)
}

type request struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

// ask sends one operation. The error is an *apiError if the server answered
// with one.
func (c *client) ask(ctx context.Context, query string, variables map[string]any, into any) error {
	body, err := json.Marshal(request{query, variables})
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(post)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || a.Data == nil && len(a.Errors) == 0 {
		return &apiError{Message: fmt.Sprintf("%s doesn't answer as a Rockpool server does: %s", c.url, response.Status)}
	}
	return a.into(into)
}

// The pauses between attempts double from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// persist repeats an operation that is safe to repeat, for as long as patience,
// while again says of its error that this can help.
func persist(ctx context.Context, patience time.Duration, again func(error) bool, attempt func() error) error {
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := attempt()
		if err == nil || ctx.Err() != nil || time.Now().After(end) || !again(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// passing reports whether err is of a connection that broke, of a server that
// is starting or stopping, or of a reader that was too slow for it.
func passing(err error) bool {
	var refused *apiError
	return !errors.As(err, &refused) || refused.Extensions.Code == runtime.CodeClusterUnavailable || refused.Extensions.Code == runtime.CodeSlowConsumer
}
