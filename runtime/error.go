package runtime

import (
	"errors"
	"fmt"
	"time"
)

// A Code says for a machine what went wrong. The set is closed and is part of
// the API (extensions.code).
type Code string

// The codes, and what each promises.
const (
	CodeInvalidInput        Code = "INVALID_INPUT"         // the request can't be carried out as it is; Field names the part
	CodeEnvironmentNotFound Code = "ENVIRONMENT_NOT_FOUND" // no environment has this id
	CodeExecutionNotFound   Code = "EXECUTION_NOT_FOUND"   // no execution has this id, or it was collected
	CodeBatchNotFound       Code = "BATCH_NOT_FOUND"       // no batch has this id, or it was collected
	CodeTicketNotFound      Code = "TICKET_NOT_FOUND"      // no ticket has this id, or it ended and was forgotten
	CodeRunnerGone          Code = "RUNNER_GONE"           // the runner isn't there (any more)
	CodeNoRunnerAvailable   Code = "NO_RUNNER_AVAILABLE"   // the pool is empty, and stayed so for as long as the caller waited
	CodeConflict            Code = "CONFLICT"              // what is stored isn't what the caller believes
	CodeFileError           Code = "FILE_ERROR"            // a file isn't there, or isn't of the right kind
	CodeLimitExceeded       Code = "LIMIT_EXCEEDED"        // a fixed bound of the server was reached
	CodeQuotaExceeded       Code = "QUOTA_EXCEEDED"        // a bound of this caller, or of all callers together, was reached; others make room
	CodeStorageFull         Code = "STORAGE_FULL"          // the disk, or the workspace, is full
	CodeSlowConsumer        Code = "SLOW_CONSUMER"         // a watcher read too slowly and was cut off
	CodeUnauthenticated     Code = "UNAUTHENTICATED"       // no valid token
	CodeForbidden           Code = "FORBIDDEN"             // the caller may not do this
	CodeClusterUnavailable  Code = "CLUSTER_UNAVAILABLE"   // the place where runners live doesn't answer
	CodeInternal            Code = "INTERNAL"              // ours; the log has the detail
)

// Codes are all.
func Codes() []Code {
	return []Code{
		CodeInvalidInput, CodeEnvironmentNotFound, CodeExecutionNotFound, CodeBatchNotFound, CodeTicketNotFound, CodeRunnerGone, CodeNoRunnerAvailable, CodeConflict,
		CodeFileError, CodeLimitExceeded, CodeQuotaExceeded, CodeStorageFull, CodeSlowConsumer, CodeUnauthenticated,
		CodeForbidden, CodeClusterUnavailable, CodeInternal,
	}
}

// Retryable reports whether the same request can succeed later without
// anybody changing it.
func (c Code) Retryable() bool {
	switch c {
	case CodeNoRunnerAvailable, CodeQuotaExceeded, CodeStorageFull, CodeSlowConsumer, CodeClusterUnavailable, CodeInternal:
		return true
	default:
		return false
	}
}

// An Error has a code for machines and a message for people. Message never
// holds a secret or a detail of the host; Err may, and is for the log.
type Error struct {
	Code    Code
	Field   string // the input's field, as the API spells it; only with CodeInvalidInput
	Message string
	Err     error

	Exceeded *Exceeded // what was reached; only with CodeQuotaExceeded, and nil for a bound that is no tenant's
}

// An Exceeded says which of a tenant's [Quotas] was reached, or which share of what the server has
// for all tenants.
type Exceeded struct {
	Quota       string // as the API spells it, for example "claimsPerMinute" or "batches"
	Limit, Used int64
	Pending     int64         // of runners: what claims have taken that wait for one; Used leaves them out
	RetryAfter  time.Duration // after which there is room again; 0: when something of the tenant's ends
}

func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] with this code and message and no cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an [Error] with this code and message, caused by err. The
// message goes to the caller; err's text goes to the log only.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// Invalid returns INVALID_INPUT for a field of the input. The message says
// what is allowed.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidInput, Field: field, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first [Error] in err's chain, and [CodeInternal]
// where there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// MessageOf returns the message of the first [Error] in err's chain, which callers may see; ""
// where there is none.
func MessageOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

// Gone returns the error of a runner that isn't there.
func Gone(id RunnerID) error { return Errorf(CodeRunnerGone, "runner %q isn't there (any more)", id) }
