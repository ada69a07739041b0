package cluster

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// problem is what the API server says against one field of an object.
type problem struct{ field, message string }

// Problems are what the API server says against an object.
type Problems struct {
	// other is a refusal that names no field.
	other  string
	fields []problem
	// Incomplete: the API server did not check all its rules because of these.
	Incomplete bool
}

// unnamed is the field of a cause that says nothing of the object: that rules were not checked.
const unnamed = "<nil>"

// notInSchema finds the fields that do not fit the schema, in a message of server-side apply or of strict validation; shownValue is how the
// former shows a value.
var (
	notInSchema = regexp.MustCompile(`\.(spec[^\s:]*): ([^\n]+)|unknown field "(spec[^"]*)"`)
	shownValue  = regexp.MustCompile(`&value\.valueUnstructured\{Value:(.*)\}`)
)

// typedPatch begins the internal error by which server-side apply refuses a manifest that does not fit the schema.
const typedPatch = "failed to create typed patch object"

// NewProblems reads an error of the API server.
func NewProblems(err error) *Problems {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return &Problems{other: err.Error()}
	}
	found := &Problems{}
	if apierrors.IsInternalError(err) || apierrors.IsBadRequest(err) {
		for _, match := range notInSchema.FindAllStringSubmatch(err.Error(), -1) {
			found.Incomplete = true
			message := cmp.Or(shownValue.ReplaceAllString(match[2], "$1"), "field not declared in schema")
			found.fields = append(found.fields, problem{match[1] + match[3], message})
		}
	}
	if status.ErrStatus.Details != nil && apierrors.IsInvalid(err) {
		for _, cause := range status.ErrStatus.Details.Causes {
			if cause.Field == unnamed {
				found.Incomplete = true
			} else {
				found.fields = append(found.fields, problem{cause.Field, cause.Message})
			}
		}
	}
	if found.fields == nil {
		found.other = err.Error()
	}
	return found
}

// Add adds the problems that are not known yet, and reports whether there are any.
func (p *Problems) Add(found *Problems) bool {
	known := len(p.fields)
	for _, one := range found.fields {
		if !slices.ContainsFunc(p.fields, func(k problem) bool { return k.field == one.field }) {
			p.fields = append(p.fields, one)
		}
	}
	if known == 0 {
		p.other = found.other
	}
	p.Incomplete = found.Incomplete
	return len(p.fields) > known
}

// Correct gives the wrong fields of a manifest their present values, or removes them, and reports whether all of them could be corrected.
func (p *Problems) Correct(manifest *unstructured.Unstructured, present map[string]any) bool {
	for _, one := range p.fields {
		path, _, _ := strings.Cut(one.field, "[")
		field := strings.Split(path, ".")
		if len(field) < 2 || field[0] != "spec" {
			return false
		}
		value, found, err := unstructured.NestedFieldCopy(present, field...)
		if err != nil || !found {
			unstructured.RemoveNestedField(manifest.Object, field...)
		} else if err := unstructured.SetNestedField(manifest.Object, value, field...); err != nil {
			return false
		}
	}
	return true
}

// String is one sentence for people.
func (p *Problems) String() string {
	texts := make([]string, 0, len(p.fields)+1)
	for _, one := range p.fields {
		texts = append(texts, one.field+": "+one.message)
	}
	if p.other != "" {
		texts = append(texts, p.other)
	}
	text := strings.Join(texts, "; ")
	if p.Incomplete {
		text += ". Other rules are checked when this is right"
	}
	return text
}

// DescribeError returns the words of an error for people. They also say if the API server left rules unchecked because of other errors.
func DescribeError(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err.Error()
	}
	if reason, denied := kube.DeniedReason(status); denied {
		return strings.Replace(err.Error(), status.Error(), "a rule of the platform refuses it: "+reason, 1)
	}
	if !apierrors.IsInvalid(status) || status.ErrStatus.Details == nil {
		return err.Error()
	}
	details := status.ErrStatus.Details
	return strings.Replace(err.Error(), status.Error(), details.Kind+" "+details.Name+" is invalid: "+NewProblems(status).String(), 1)
}
