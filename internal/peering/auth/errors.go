// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"liqo.io/liqo/internal/peering/auth/challenge"
)

// Reason is why a request was refused, for programs.
type Reason string

// The reasons.
const (
	ReasonInvalid        Reason = "Invalid"
	ReasonVersion        Reason = "VersionMismatch"
	ReasonChallenge      Reason = "ChallengeNeeded" // a new challenge must be signed, which the client does
	ReasonEmptyDenied    Reason = "EmptyDenied"
	ReasonDenied         Reason = "Denied"
	ReasonConflict       Reason = "KeyConflict"
	ReasonNotRegistered  Reason = "NotRegistered"
	ReasonRevoked        Reason = "Revoked"
	ReasonNotAdmitted    Reason = "NotAdmitted"
	ReasonTooMany        Reason = "TooManyRequests"
	ReasonNotFound       Reason = "NotFound"
	ReasonMethod         Reason = "MethodNotAllowed"
	ReasonUnavailable    Reason = "Unavailable"
	ReasonTenantNotReady Reason = "TenantNotReady"

	// ReasonUnreachable is set by the client: no answer, or one that is not from an authentication service.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonUnproven is set by the client: the service does not have the provider's key.
	ReasonUnproven Reason = "ProviderUnproven"
)

// Classes of refusals, for errors.Is.
var (
	ErrInvalid     = errors.New("request is not valid")
	ErrVersion     = errors.New("no common protocol version")
	ErrEmptyDenied = errors.New("empty token denied")
	ErrDenied      = errors.New("token denied")
	ErrConflict    = errors.New("no peer with this key")
	ErrTooMany     = errors.New("too many requests")
	ErrUnreachable = errors.New("authentication service unreachable")
	// ErrUnproven means that another service may answer in the place of the provider's.
	ErrUnproven = errors.New("the provider is not proven")
	// ErrUnavailable is a failure within the provider: the same request may succeed later.
	ErrUnavailable = errors.New("authentication service unavailable")
)

// Error is a refusal, as the service writes it and as the client returns it.
type Error struct {
	// Code is the HTTP status; 0 if there was no answer of an authentication service.
	Code    int    `json:"code"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`

	// RetryAfter is how long to wait before the next request; zero if the service did not set it.
	RetryAfter time.Duration `json:"-"`

	// Cause is for the log of the server, or why there was no answer. It is not sent.
	Cause error `json:"-"`
}

// Error returns the message, which is for people.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether the refusal belongs to a class.
func (e *Error) Is(class error) bool {
	switch class {
	case ErrInvalid:
		return e.Code == http.StatusBadRequest && e.Reason != ReasonVersion
	case ErrVersion:
		return e.Reason == ReasonVersion
	case ErrEmptyDenied:
		return e.Reason == ReasonEmptyDenied
	case ErrDenied:
		return e.Code == http.StatusUnauthorized && e.Reason != ReasonEmptyDenied
	case ErrConflict:
		return e.Code == http.StatusForbidden
	case ErrTooMany:
		return e.Code == http.StatusTooManyRequests
	case ErrUnreachable:
		return e.Reason == ReasonUnreachable
	case ErrUnproven:
		return e.Reason == ReasonUnproven
	case ErrUnavailable:
		return e.Code >= http.StatusInternalServerError
	}
	return false
}

// Refuse returns a refusal with an HTTP status.
func Refuse(code int, reason Reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the refusal of a request that no client of this protocol sends.
func Invalid(format string, args ...any) *Error {
	return Refuse(http.StatusBadRequest, ReasonInvalid, format, args...)
}

// Unavailable hides the cause from unauthenticated clients; the server logs it.
func Unavailable(cause error) *Error {
	return &Error{
		Code: http.StatusServiceUnavailable, Reason: ReasonUnavailable, Cause: cause,
		Message: "the provider cannot do this now; its administrator finds the cause in the logs of Deployment liqo-auth",
	}
}

// ChallengeNeeded is the refusal of a request with another challenge than the latest of this process.
var ChallengeNeeded = Refuse(http.StatusBadRequest, ReasonChallenge,
	"the request must be signed over an unused challenge that this service issued for this cluster within the last %s; request one at %s",
	challenge.Lifetime, PathChallenge)
