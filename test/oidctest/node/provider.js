// An OpenID provider on loopback, with its development pages: they accept any password. Its only argument is JSON:
// {port, clientID, clientSecret, redirectURL, groups: {user: [group]}}
import Provider from 'oidc-provider'

const { port, clientID, clientSecret, redirectURL, groups } = JSON.parse(process.argv[2])

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: clientID,
    client_secret: clientSecret,
    application_type: 'native', // a redirect to loopback, on any port
    redirect_uris: [redirectURL],
    grant_types: ['authorization_code'],
    response_types: ['code'],
  }],
  pkce: { required: () => true },
  claims: { openid: ['sub'], profile: ['name'], groups: ['groups'] },
  conformIdTokenClaims: false, // claims of scopes are in the ID token, where a kube-apiserver looks for them too
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: `Account ${id}`, groups: groups[id] }) }),
})
provider.listen(port, '127.0.0.1')
