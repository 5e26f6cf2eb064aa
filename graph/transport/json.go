package transport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// decode decodes JSON. Numbers keep their text.
func decode(text []byte, into any) error {
	if _, err := clients.Values(text); err != nil {
		return err
	}
	return unmarshal(text, into)
}

// unmarshal decodes text that Values has checked.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return malformed(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return runtime.Errorf(runtime.CodeInvalidInput, "the request has more than one JSON value")
	}
	return nil
}

// malformed returns INVALID_INPUT for text that couldn't be decoded.
func malformed(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return runtime.Errorf(runtime.CodeInvalidInput, "%s can't be a JSON %s", cmp.Or(kind.Field, "the request"), kind.Value)
	}
	return runtime.Errorf(runtime.CodeInvalidInput, "the request isn't JSON: %s", err)
}

// decodeParams decodes an operation from text that Values has checked.
func decodeParams(text []byte) (*graphql.RawParams, error) {
	var params struct {
		Query         *string        `json:"query"`
		OperationName string         `json:"operationName"`
		Variables     map[string]any `json:"variables"`
		Extensions    map[string]any `json:"extensions"`
	}
	if err := unmarshal(text, &params); err != nil {
		return nil, err
	}
	if params.Query == nil {
		return nil, runtime.Errorf(runtime.CodeInvalidInput, "the request has no query")
	}
	return &graphql.RawParams{Query: *params.Query, OperationName: params.OperationName, Variables: params.Variables, Extensions: params.Extensions}, nil
}
