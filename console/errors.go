package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/payments"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Errors of the console as a whole. Each room has its own.
var (
	errCrossOrigin = errors.New("the form comes from another site")
	errHost        = errors.New("the host name is not that of --external-url")
	// errTooManyPages means that a page or a sign-in did not get its turn in time.
	errTooManyPages = errors.New("too many pages are in progress")
	errTooManyWaits = errors.New("too many pages wait at once")
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

// problems write the pages of errors. They are safe for concurrent use.
type problems struct {
	pages  *web.Pages
	origin *url.URL // of our pages
	log    *slog.Logger
}

// respond writes the page of an error. viewer is nil if nobody is signed in, or it is not known.
func (p *problems) respond(w http.ResponseWriter, r *http.Request, viewer *login.Person, err error) {
	if errors.Is(err, login.ErrSignedOut) && r.Method == http.MethodGet {
		http.Redirect(w, r, login.SignInPath+"?"+url.Values{"returnTo": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		return
	}
	page := p.newProblem(p.pages.Words(r.Context()), err)
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
		p.log.Error("request failed", "route", r.Pattern, "error", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
		p.log.Warn("request failed", "route", r.Pattern, "error", err)
	}
	if err := p.pages.Render(w, r, page.status, "problem", web.View{Title: page.Title, Viewer: viewer, Data: page}); err != nil {
		p.log.Error("could not write a page", "error", err)
	}
}

// errorPage is the page of an error. Its words are error.<words>.title and error.<words>.
type errorPage struct {
	match         func(error) bool
	status        int
	words         string
	signIn, again bool
}

// errorPages has the page of each error: the first row that matches.
var errorPages = []errorPage{
	{match: as[limitedError], status: http.StatusTooManyRequests, words: "toomany"},
	{match: is(authz.ErrReviewBudget), status: http.StatusTooManyRequests, words: "budget"},
	{match: is(clientaddr.ErrMalformed), status: http.StatusBadRequest, words: "address"},
	{match: as[*objects.GitManagedError], status: http.StatusConflict, words: "git"},
	{match: as[*objects.DeniedError], status: http.StatusUnprocessableEntity, words: "policy"},
	{match: as[*keys.NotIssuedError], status: http.StatusServiceUnavailable, words: "notready"},
	{match: is(webhook.ErrSecretUnavailable), status: http.StatusServiceUnavailable, words: "nosecret", again: true},
	{match: both(as[*webhook.SecretNotShownError], is(issuer.ErrRefused)), status: http.StatusServiceUnavailable, words: "hidden"},
	{match: as[*webhook.SecretNotShownError], status: http.StatusServiceUnavailable, words: "notshown"},
	{match: is(issuer.ErrGeneration), status: http.StatusConflict, words: "rotated"},
	{match: is(issuer.ErrUnknownOutcome), status: http.StatusServiceUnavailable, words: "unknown"},
	{match: is(issuer.ErrTooOften), status: http.StatusTooManyRequests, words: "toooften"},
	{match: is(keys.ErrReplaced), status: http.StatusConflict, words: "replaced"},
	{match: is(issuer.ErrNotPublished), status: http.StatusConflict, words: "unpublished"},
	{match: is(rights.ErrNone), status: http.StatusForbidden, words: "noright"},
	{match: is(login.ErrSignedOut), status: http.StatusUnauthorized, words: "signedout", signIn: true, again: true},
	{match: is(webhook.ErrNoDeadLetter), status: http.StatusNotFound, words: "noletter"},
	{match: is(payments.ErrNoPayment), status: http.StatusNotFound, words: "nopayment"},
	{match: is(payments.ErrNoDay), status: http.StatusBadRequest, words: "noday"},
	{match: is(payments.ErrNotKept), status: http.StatusGone, words: "notkept"},
	{match: is(payments.ErrTooManyLines), status: http.StatusUnprocessableEntity, words: "excel"},
	{match: is(payments.ErrTooManyDownloads), status: http.StatusTooManyRequests, words: "downloads"},
	{match: is(errTooManyPages), status: http.StatusServiceUnavailable, words: "busy"},
	{match: is(payments.ErrTooManyReads), status: http.StatusServiceUnavailable, words: "busy"},
	{match: is(errTooManyWaits), status: http.StatusTooManyRequests, words: "waits"},
	{match: is(web.ErrNotFound), status: http.StatusNotFound, words: "notfound"},
	{match: is(errCrossOrigin), status: http.StatusForbidden, words: "crossorigin"},
	{match: is(errHost), status: http.StatusMisdirectedRequest, words: "host"},
	{match: is(login.ErrProvider), status: http.StatusServiceUnavailable, words: "provider", signIn: true},
	{match: is(login.ErrAttempt), status: http.StatusBadRequest, words: "signin", signIn: true},
	{match: is(login.ErrToken), status: http.StatusBadRequest, words: "signin", signIn: true},
	{match: is(login.ErrClaims), status: http.StatusForbidden, words: "claims"},
	{match: is(payments.ErrRefundUnknown), status: http.StatusServiceUnavailable, words: "refund", again: true},
	{match: is(redis.ErrUnavailable), status: http.StatusServiceUnavailable, words: "unavailable", again: true},
	{match: is(authz.ErrUnavailable), status: http.StatusServiceUnavailable, words: "unavailable", again: true},
	{match: is(objects.ErrUnavailable), status: http.StatusServiceUnavailable, words: "unavailable", again: true},
	{match: is(issuer.ErrNoTime), status: http.StatusServiceUnavailable, words: "unavailable", again: true},
	{match: is(context.DeadlineExceeded), status: http.StatusServiceUnavailable, words: "unavailable", again: true},
	{match: func(error) bool { return true }, status: http.StatusInternalServerError, words: "bug"},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func both(a, b func(error) bool) func(error) bool {
	return func(err error) bool { return a(err) && b(err) }
}

func (p *problems) newProblem(words web.Words, err error) problem {
	var value any = p.origin.String()
	if git, ok := errors.AsType[*objects.GitManagedError](err); ok {
		value = web.ManagerText(git.Manager)
	}
	if denied, ok := errors.AsType[*objects.DeniedError](err); ok {
		value = denied.Reason
	}
	if half, ok := errors.AsType[*keys.NotIssuedError](err); ok {
		value = half.Key
	}
	if as[*webhook.SecretNotShownError](err) {
		value = published.MaxRetired
	}
	row := errorPages[slices.IndexFunc(errorPages, func(row errorPage) bool { return row.match(err) })]
	key := "error." + row.words
	return problem{status: row.status, Title: words.Text(key + ".title"), Message: words.Text(key, value), SignIn: row.signIn, Again: row.again}
}
