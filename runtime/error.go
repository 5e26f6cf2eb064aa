package runtime

import (
	"errors"
	"fmt"
	"time"
)

// A Code identifies an error for programs. The set is closed and part of the API
// (extensions.code).
type Code string

// The codes.
const (
	CodeInvalidInput        Code = "INVALID_INPUT"         // the request is invalid; Field names the part
	CodeEnvironmentNotFound Code = "ENVIRONMENT_NOT_FOUND" // no environment has this id
	CodeExecutionNotFound   Code = "EXECUTION_NOT_FOUND"   // no execution has this id, or retention removed it
	CodeBatchNotFound       Code = "BATCH_NOT_FOUND"       // no batch has this id, or retention removed it
	CodeTicketNotFound      Code = "TICKET_NOT_FOUND"      // no ticket has this id, or it ended and was forgotten
	CodeRunnerGone          Code = "RUNNER_GONE"           // the runner doesn't exist, or no longer exists
	CodeNoRunnerAvailable   Code = "NO_RUNNER_AVAILABLE"   // the pool stayed empty for as long as the caller waited
	CodeConflict            Code = "CONFLICT"              // the stored state differs from what the caller expects
	CodeFileError           Code = "FILE_ERROR"            // a file is missing or of the wrong type
	CodeLimitExceeded       Code = "LIMIT_EXCEEDED"        // a fixed limit of the server was reached
	CodeQuotaExceeded       Code = "QUOTA_EXCEEDED"        // a quota of this tenant, or of all tenants together, was reached
	CodeStorageFull         Code = "STORAGE_FULL"          // the disk or the workspace is full
	CodeSlowConsumer        Code = "SLOW_CONSUMER"         // a subscriber read too slowly and was disconnected
	CodeUnauthenticated     Code = "UNAUTHENTICATED"       // no valid token
	CodeForbidden           Code = "FORBIDDEN"             // the caller may not do this
	CodeClusterUnavailable  Code = "CLUSTER_UNAVAILABLE"   // the cluster doesn't answer
	CodeInternal            Code = "INTERNAL"              // a defect of Rockpool; the log has the details
)

// Codes returns all codes.
func Codes() []Code {
	return []Code{
		CodeInvalidInput, CodeEnvironmentNotFound, CodeExecutionNotFound, CodeBatchNotFound, CodeTicketNotFound, CodeRunnerGone, CodeNoRunnerAvailable, CodeConflict,
		CodeFileError, CodeLimitExceeded, CodeQuotaExceeded, CodeStorageFull, CodeSlowConsumer, CodeUnauthenticated,
		CodeForbidden, CodeClusterUnavailable, CodeInternal,
	}
}

// Retryable reports whether the same request can succeed later although nobody changed it.
func (c Code) Retryable() bool {
	switch c {
	case CodeNoRunnerAvailable, CodeQuotaExceeded, CodeStorageFull, CodeSlowConsumer, CodeClusterUnavailable, CodeInternal:
		return true
	default:
		return false
	}
}

// An Error has a code for programs and a message for people. Message never contains a secret or a
// detail of the host; Err may, and is for the log only.
type Error struct {
	Code    Code
	Field   string // of the input, as the API spells it; only with CodeInvalidInput
	Message string
	Err     error

	Offset   *int64    // of stdin: the bytes that the program's stdin already has, where the caller may continue
	Exceeded *Exceeded // only with CodeQuotaExceeded; nil means the quota belongs to no tenant
}

// An Exceeded says which of a tenant's [Quotas] was reached, or which share of the server's total.
type Exceeded struct {
	Quota       string // as the API spells it, for example "claimsPerMinute" or "batches"
	Limit, Used int64
	Pending     int64         // of runners: reserved by waiting claims; not included in Used
	RetryAfter  time.Duration // after which there is room; 0 means once something of the tenant ends
}

// Error returns the field, the message, and the cause, separated by colons.
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

// Errorf returns an [Error] with a code, a formatted message, and no cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an [Error] with a code and a formatted message, caused by err. The caller sees the
// message; err's text is for the log only.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// Invalid returns INVALID_INPUT for a field of the input. The message says what is allowed.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidInput, Field: field, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first [Error] in err's chain, or [CodeInternal] if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// MessageOf returns the message of the first [Error] in err's chain, which callers may see, or ""
// if there is none.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return ""
}

// Gone returns RUNNER_GONE for a runner that doesn't exist or no longer exists.
func Gone(id RunnerID) error { return Errorf(CodeRunnerGone, "runner %q is gone or never existed", id) }
