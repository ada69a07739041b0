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
		return problem{status: http.StatusTooManyRequests, Title: "Too many requests", Message: "Your address sends too many requests, perhaps because many people share it. " +
			"Wait some seconds, then reload this page; a form is sent again. Nothing was changed."}
	case errors.Is(err, authz.ErrReviewBudget):
		return problem{status: http.StatusTooManyRequests, Title: "Too many requests", Message: "You open pages faster than your rights can be checked. " +
			"Wait some seconds, then reload this page; a form is sent again. Nothing was changed."}
	case errors.Is(err, clientaddr.ErrMalformed):
		return problem{status: http.StatusBadRequest, Title: "Unknown address", Message: "A proxy sent an address that cannot be read. Tell the platform team to check --trusted-proxies."}
	case errors.As(err, &git):
		return problem{status: http.StatusConflict, Title: "Managed by Git", Message: git.Error() + " Nothing was changed. Keys can be rotated here."}
	case errors.As(err, &half):
		return problem{status: http.StatusServiceUnavailable, Title: "The key is not ready", Message: half.key +
			" was created, but nobody has its key. Open the merchant's page in a minute and rotate it: that shows a key."}
	case errors.Is(err, errGeneration):
		return problem{status: http.StatusConflict, Title: "Rotated meanwhile", Message: "This key was rotated since you opened the form, " +
			"perhaps by the same form. Nothing was changed now. If nobody has the new key, open the merchant's page and rotate again."}
	case errors.Is(err, errUnknownOutcome):
		return problem{status: http.StatusServiceUnavailable, Title: "Perhaps rotated", Message: "The API did not answer, so the key may have been rotated. " +
			"Open the merchant's page: if “Current key since” is a moment ago, nobody has the new key, and you should rotate again."}
	case errors.Is(err, errTooOften):
		return problem{status: http.StatusTooManyRequests, Title: "Rotated too often", Message: "This key was rotated too often. Wait a minute. Nothing was changed."}
	case errors.Is(err, errNotPublished):
		return problem{status: http.StatusConflict, Title: "Not published yet", Message: "The key is not published yet. Try again in a minute. Nothing was changed."}
	case errors.Is(err, errNoRight):
		return problem{status: http.StatusForbidden, Title: "Not allowed", Message: "You may see this merchant but not do this. The platform team gives rights. Nothing was changed."}
	case errors.Is(err, login.ErrSignedOut):
		return problem{status: http.StatusUnauthorized, Title: "Your sign-in has ended", Message: "Nothing was changed. Sign in again, then send the form again.", SignIn: true, Again: true}
	case errors.Is(err, errNoDeadLetter):
		return problem{status: http.StatusNotFound, Title: "Nothing to send again", Message: "There is no such dead letter of this merchant. Perhaps somebody has sent it again already."}
	case errors.Is(err, errNoPayment):
		return problem{status: http.StatusNotFound, Title: "No such payment", Message: "This merchant has no such payment, or it ended too long ago. The CSV of its day may have it."}
	case errors.Is(err, errNoDay):
		return problem{status: http.StatusBadRequest, Title: "Not a day", Message: "Choose a day, such as 2026-11-22."}
	case errors.Is(err, errNotKept):
		return problem{status: http.StatusGone, Title: "Too long ago", Message: "Not all payments of this day are kept any more, so there is no file of it."}
	case errors.Is(err, errTooManyExports):
		return problem{status: http.StatusTooManyRequests, Title: "Too many downloads", Message: "Wait until a download has ended, then try again."}
	case errors.Is(err, errNotFound):
		return problem{status: http.StatusNotFound, Title: "Not found", Message: "This page does not exist, or you have no right to see it. The platform team gives rights."}
	case errors.Is(err, errCrossOrigin):
		return problem{status: http.StatusForbidden, Title: "Refused", Message: "The form was sent from another site. Nothing was changed. Open the console and use the form there."}
	case errors.Is(err, errHost):
		return problem{status: http.StatusMisdirectedRequest, Title: "Wrong address", Message: "The address of the console is " + c.origin.String() + "."}
	case errors.Is(err, login.ErrProvider):
		return problem{status: http.StatusServiceUnavailable, Title: "Sign-in is not available", Message: "The identity provider does not answer. Try again in a minute. If you are signed in elsewhere, you stay signed in.", SignIn: true}
	case errors.Is(err, login.ErrAttempt), errors.Is(err, login.ErrToken):
		return problem{status: http.StatusBadRequest, Title: "Sign-in failed", Message: "The sign-in is too old, was used before, or was begun elsewhere. Sign in again.", SignIn: true}
	case errors.Is(err, login.ErrClaims):
		return problem{status: http.StatusForbidden, Title: "Sign-in failed", Message: "The identity provider sent no user name that the console accepts. Ask the platform team to check --oidc-username-claim."}
	case errors.Is(err, redis.ErrUnavailable), errors.Is(err, authz.ErrUnavailable), errors.Is(err, errKubernetes), errors.Is(err, errNoTime), errors.Is(err, context.DeadlineExceeded):
		return problem{status: http.StatusServiceUnavailable, Title: "Temporarily unavailable", Message: "The console cannot reach a service that it needs. Try again in a minute. Keys keep working.", Again: true}
	}
	return problem{status: http.StatusInternalServerError, Title: "Something went wrong", Message: "Try again. If it happens again, tell the platform team when it happened."}
}
