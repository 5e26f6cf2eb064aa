package model

import (
	"github.com/rockpool/rockpool/graph/pagination"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/tenantusage"
)

// PageInfo says whether more pages follow, and how to get the next one.
type PageInfo = pagination.PageInfo

// RunnerConnection is a page of runners.
type RunnerConnection = pagination.Connection[runtime.Runner]

// RunnerEdge is a runner in a page.
type RunnerEdge = pagination.Edge[runtime.Runner]

// ExecutionConnection is a page of executions.
type ExecutionConnection = pagination.Connection[runtime.Execution]

// ExecutionEdge is an execution in a page.
type ExecutionEdge = pagination.Edge[runtime.Execution]

// BatchConnection is a page of batches.
type BatchConnection = pagination.Connection[runtime.Batch]

// BatchEdge is a batch in a page.
type BatchEdge = pagination.Edge[runtime.Batch]

// BatchCaseConnection is a page of cases.
type BatchCaseConnection = pagination.Connection[runtime.Case]

// BatchCaseEdge is a case in a page.
type BatchCaseEdge = pagination.Edge[runtime.Case]

// FileConnection is a page of files.
type FileConnection = pagination.Connection[runtime.File]

// FileEdge is a file in a page.
type FileEdge = pagination.Edge[runtime.File]

// EvaluationConnection is a page of evaluations.
type EvaluationConnection = pagination.Connection[runtime.Evaluation]

// EvaluationEdge is an evaluation in a page.
type EvaluationEdge = pagination.Edge[runtime.Evaluation]

// AllocationConnection is a page of allocations.
type AllocationConnection = pagination.Connection[runtime.Allocation]

// AllocationEdge is an allocation in a page.
type AllocationEdge = pagination.Edge[runtime.Allocation]

// AuditEntryConnection is a page of the audit log.
type AuditEntryConnection = pagination.Connection[audit.Entry]

// AuditEntryEdge is an entry in a page.
type AuditEntryEdge = pagination.Edge[audit.Entry]

// WaitingClaimConnection is a page of waiting claims.
type WaitingClaimConnection = pagination.Connection[tenantusage.WaitingClaim]

// WaitingClaimEdge is a claim in a page.
type WaitingClaimEdge = pagination.Edge[tenantusage.WaitingClaim]
