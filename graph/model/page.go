package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
)

// RunnerConnection is a page of runners.
type RunnerConnection = Connection[runtime.Runner]

// RunnerEdge is a runner in a page.
type RunnerEdge = Edge[runtime.Runner]

// ExecutionConnection is a page of executions.
type ExecutionConnection = Connection[runtime.Execution]

// ExecutionEdge is an execution in a page.
type ExecutionEdge = Edge[runtime.Execution]

// BatchConnection is a page of batches.
type BatchConnection = Connection[runtime.Batch]

// BatchEdge is a batch in a page.
type BatchEdge = Edge[runtime.Batch]

// BatchCaseConnection is a page of cases.
type BatchCaseConnection = Connection[runtime.Case]

// BatchCaseEdge is a case in a page.
type BatchCaseEdge = Edge[runtime.Case]

// FileConnection is a page of files.
type FileConnection = Connection[runtime.File]

// FileEdge is a file in a page.
type FileEdge = Edge[runtime.File]

// EvaluationConnection is a page of evaluations.
type EvaluationConnection = Connection[runtime.Evaluation]

// EvaluationEdge is an evaluation in a page.
type EvaluationEdge = Edge[runtime.Evaluation]

// AllocationConnection is a page of allocations.
type AllocationConnection = Connection[runtime.Allocation]

// AllocationEdge is an allocation in a page.
type AllocationEdge = Edge[runtime.Allocation]

// AuditEntryConnection is a page of the audit log.
type AuditEntryConnection = Connection[audit.Entry]

// AuditEntryEdge is an entry in a page.
type AuditEntryEdge = Edge[audit.Entry]

// WaitingClaimConnection is a page of waiting claims.
type WaitingClaimConnection = Connection[engine.WaitingClaim]

// WaitingClaimEdge is a claim in a page.
type WaitingClaimEdge = Edge[engine.WaitingClaim]
