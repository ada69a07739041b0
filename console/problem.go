package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Errors that become pages.
var (
	// errNoRight means that the person may see the Merchant, and not do this.
	errNoRight     = errors.New("no right")
	errCrossOrigin = errors.New("the form comes from another site")
	errHost        = errors.New("the host name is not that of --external-url")
)

// limitedError means that the client address sends too many requests.
type limitedError struct{ quota ratelimit.Quota }

// Error is for the log.
func (e limitedError) Error() string { return "too many requests from one address" }

// problem is the page of an error.
type problem struct {
	status         int
	Title, Message string
	// SignIn offers to sign in; Again says that a form may be sent again, which Retry and Path do.
	SignIn, Again bool
	Retry         url.Values
	Path          string
}

// respondError writes the page of an error. viewer is nil if nobody is signed in, or it is not known.
func (c *console) respondError(w http.ResponseWriter, r *http.Request, viewer *login.Person, err error) {
	if errors.Is(err, login.ErrSignedOut) && r.Method == http.MethodGet {
		http.Redirect(w, r, login.SignInPath+"?"+url.Values{"returnTo": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		return
	}
	page := c.newProblem(err)
	if page.Again && r.Method == http.MethodPost && r.ParseForm() == nil { // what was typed is not lost
		page.Retry, page.Path = r.PostForm, r.URL.Path
	}
	if limited, ok := errors.AsType[limitedError](err); ok {
		w.Header().Set("Retry-After", limited.quota.RetryAfterHeader())
	} else if page.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5")
	}
	switch page.status {
	case http.StatusInternalServerError:
		c.log.Error("request failed", "route", r.Pattern, "error", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
		c.log.Warn("request failed", "route", r.Pattern, "error", err)
	}
	if err := c.pages.render(w, page.status, "problem", view{Title: page.Title, Viewer: viewer, Data: page}); err != nil {
		c.log.Error("could not write a page", "error", err)
	}
}

func (c *console) newProblem(err error) problem {
	var git *gitManagedError
	var half *notIssuedError
	switch {
	case errors.As(err, new(limitedError)):
		return problem{status: http.StatusTooManyRequests, Title: c.words.text("error.toomany.title"), Message: c.words.text("error.toomany")}
	case errors.Is(err, authz.ErrReviewBudget):
		return problem{status: http.StatusTooManyRequests, Title: c.words.text("error.budget.title"), Message: c.words.text("error.budget")}
	case errors.Is(err, clientaddr.ErrMalformed):
		return problem{status: http.StatusBadRequest, Title: c.words.text("error.address.title"), Message: c.words.text("error.address")}
	case errors.As(err, &git):
		return problem{status: http.StatusConflict, Title: c.words.text("error.git.title"), Message: c.words.text("error.git", git.Error())}
	case errors.As(err, &half):
		return problem{status: http.StatusServiceUnavailable, Title: c.words.text("error.notready.title"), Message: c.words.text("error.notready", half.key)}
	case errors.Is(err, errGeneration):
		return problem{status: http.StatusConflict, Title: c.words.text("error.rotated.title"), Message: c.words.text("error.rotated")}
	case errors.Is(err, errUnknownOutcome):
		return problem{status: http.StatusServiceUnavailable, Title: c.words.text("error.unknown.title"), Message: c.words.text("error.unknown")}
	case errors.Is(err, errTooOften):
		return problem{status: http.StatusTooManyRequests, Title: c.words.text("error.toooften.title"), Message: c.words.text("error.toooften")}
	case errors.Is(err, errNotPublished):
		return problem{status: http.StatusConflict, Title: c.words.text("error.unpublished.title"), Message: c.words.text("error.unpublished")}
	case errors.Is(err, errNoRight):
		return problem{status: http.StatusForbidden, Title: c.words.text("error.noright.title"), Message: c.words.text("error.noright")}
	case errors.Is(err, login.ErrSignedOut):
		return problem{status: http.StatusUnauthorized, Title: c.words.text("error.signedout.title"), Message: c.words.text("error.signedout"), SignIn: true, Again: true}
	case errors.Is(err, errNoDeadLetter):
		return problem{status: http.StatusNotFound, Title: c.words.text("error.noletter.title"), Message: c.words.text("error.noletter")}
	case errors.Is(err, errNoPayment):
		return problem{status: http.StatusNotFound, Title: c.words.text("error.nopayment.title"), Message: c.words.text("error.nopayment")}
	case errors.Is(err, errNoDay):
		return problem{status: http.StatusBadRequest, Title: c.words.text("error.noday.title"), Message: c.words.text("error.noday")}
	case errors.Is(err, errNotKept):
		return problem{status: http.StatusGone, Title: c.words.text("error.notkept.title"), Message: c.words.text("error.notkept")}
	case errors.Is(err, errTooManyExports):
		return problem{status: http.StatusTooManyRequests, Title: c.words.text("error.downloads.title"), Message: c.words.text("error.downloads")}
	case errors.Is(err, errNotFound):
		return problem{status: http.StatusNotFound, Title: c.words.text("error.notfound.title"), Message: c.words.text("error.notfound")}
	case errors.Is(err, errCrossOrigin):
		return problem{status: http.StatusForbidden, Title: c.words.text("error.crossorigin.title"), Message: c.words.text("error.crossorigin")}
	case errors.Is(err, errHost):
		return problem{status: http.StatusMisdirectedRequest, Title: c.words.text("error.host.title"), Message: c.words.text("error.host", c.origin.String())}
	case errors.Is(err, login.ErrProvider):
		return problem{status: http.StatusServiceUnavailable, Title: c.words.text("error.provider.title"), Message: c.words.text("error.provider"), SignIn: true}
	case errors.Is(err, login.ErrAttempt), errors.Is(err, login.ErrToken):
		return problem{status: http.StatusBadRequest, Title: c.words.text("error.signin.title"), Message: c.words.text("error.signin"), SignIn: true}
	case errors.Is(err, login.ErrClaims):
		return problem{status: http.StatusForbidden, Title: c.words.text("error.claims.title"), Message: c.words.text("error.claims")}
	case errors.Is(err, redis.ErrUnavailable), errors.Is(err, authz.ErrUnavailable), errors.Is(err, errKubernetes), errors.Is(err, errNoTime), errors.Is(err, context.DeadlineExceeded):
		return problem{status: http.StatusServiceUnavailable, Title: c.words.text("error.unavailable.title"), Message: c.words.text("error.unavailable"), Again: true}
	}
	return problem{status: http.StatusInternalServerError, Title: c.words.text("error.bug.title"), Message: c.words.text("error.bug")}
}
