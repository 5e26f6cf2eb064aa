package sandbox

import "errors"

// A Failure is an error of a runner's start, with what clients may know about it.
type Failure struct {
	Message       string // shown to clients, so it names no paths of the machine
	Unrecoverable bool   // retrying can't help
	Err           error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// FailureOf returns err as a Failure, with a general message if it isn't one.
func FailureOf(err error) Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return Failure{f.Message, f.Unrecoverable, err}
	}
	return Failure{Message: "it couldn't be started; the server's log says why", Err: err}
}
