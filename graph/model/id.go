package model

import (
	"encoding/json"
	"strconv"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/runtime"
)

// MarshalID writes an ID as MarshalString does.
func MarshalID(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalID reads an ID from a string or a whole number.
func UnmarshalID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return UnmarshalString(v)
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String(), nil
		}
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return "", runtime.Invalid("", "must be a string or a whole number")
}

// The pairs below let gqlgen bind fields of these types to ID.

// MarshalEnvironmentID writes an ID.
func MarshalEnvironmentID(id runtime.EnvironmentID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalEnvironmentID reads an ID.
func UnmarshalEnvironmentID(v any) (runtime.EnvironmentID, error) {
	id, err := UnmarshalID(v)
	return runtime.EnvironmentID(id), err
}

// MarshalRunnerID writes an ID.
func MarshalRunnerID(id runtime.RunnerID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalRunnerID reads an ID.
func UnmarshalRunnerID(v any) (runtime.RunnerID, error) {
	id, err := UnmarshalID(v)
	return runtime.RunnerID(id), err
}

// MarshalExecutionID writes an ID.
func MarshalExecutionID(id runtime.ExecutionID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalExecutionID reads an ID.
func UnmarshalExecutionID(v any) (runtime.ExecutionID, error) {
	id, err := UnmarshalID(v)
	return runtime.ExecutionID(id), err
}

// MarshalBatchID writes an ID.
func MarshalBatchID(id runtime.BatchID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalBatchID reads an ID.
func UnmarshalBatchID(v any) (runtime.BatchID, error) {
	id, err := UnmarshalID(v)
	return runtime.BatchID(id), err
}

// MarshalEvaluationID writes an ID.
func MarshalEvaluationID(id runtime.EvaluationID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalEvaluationID reads an ID.
func UnmarshalEvaluationID(v any) (runtime.EvaluationID, error) {
	id, err := UnmarshalID(v)
	return runtime.EvaluationID(id), err
}

// MarshalAllocationID writes an ID.
func MarshalAllocationID(id runtime.AllocationID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalAllocationID reads an ID.
func UnmarshalAllocationID(v any) (runtime.AllocationID, error) {
	id, err := UnmarshalID(v)
	return runtime.AllocationID(id), err
}

// MarshalTenantID writes a tenant's name.
func MarshalTenantID(id runtime.TenantID) graphql.Marshaler { return MarshalString(id.String()) }

// UnmarshalTenantID reads a tenant's name.
func UnmarshalTenantID(v any) (runtime.TenantID, error) {
	name, err := UnmarshalString(v)
	if err != nil {
		return "", err
	}
	return runtime.ParseTenant("", name)
}

// MarshalTicketID writes an ID.
func MarshalTicketID(id runtime.TicketID) graphql.Marshaler { return MarshalID(string(id)) }

// UnmarshalTicketID reads an ID.
func UnmarshalTicketID(v any) (runtime.TicketID, error) {
	id, err := UnmarshalID(v)
	return runtime.TicketID(id), err
}
