/** The token Django expects in `X-CSRFToken`; read at each call, since signing in changes it. */
export function csrfToken() {
  const pair = document.cookie.split("; ").find((cookie) => cookie.startsWith("tf_csrf="));
  return pair ? decodeURIComponent(pair.slice("tf_csrf=".length)) : "";
}
